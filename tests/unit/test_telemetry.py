from __future__ import annotations

import io
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from webgym.errors import UsageError
from webgym.telemetry import Numbers, TelemetryServer, configure_logging, last_word, log_context


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.read().decode()


def test_health_and_metrics_are_served() -> None:
    registry = CollectorRegistry()
    Counter("episodes", "Episodes done.", registry=registry).inc(3)
    state: list[str | None] = [None]
    with TelemetryServer(lambda: state[0], registry=registry) as server:
        assert get(server.port, "/healthz") == (200, '{"status": "ok"}')
        state[0] = "no browser is alive"
        status, body = get(server.port, "/healthz")
        assert status == 503
        assert json.loads(body)["reason"] == "no browser is alive"
        status, body = get(server.port, "/metrics")
        assert status == 200
        assert "episodes_total 3.0" in body
        assert get(server.port, "/secret")[0] == 404
        with pytest.raises(UsageError, match="WEBGYM_METRICS_PORT"):
            TelemetryServer(lambda: None, port=server.port, registry=registry)


def test_a_health_check_that_fails_is_unhealthy() -> None:
    def check() -> str | None:
        raise ConnectionError("Redis is gone")

    with TelemetryServer(check, registry=CollectorRegistry()) as server:
        status, body = get(server.port, "/healthz")
    assert status == 503
    assert "Redis is gone" in body


def test_the_latest_figures_are_gauges_with_the_programs_labels() -> None:
    registry = CollectorRegistry()
    numbers = Numbers({"run": "u1", "program": "learner-0"}, registry)
    assert generate_latest(registry) == b""
    numbers.set({"steps": 5, "loss": 0.25, "success": None, "reason": "steps", "alive": True})
    lines = generate_latest(registry).decode().splitlines()
    assert 'webgym_steps{program="learner-0",run="u1"} 5.0' in lines
    assert 'webgym_loss{program="learner-0",run="u1"} 0.25' in lines
    assert 'webgym_alive{program="learner-0",run="u1"} 1.0' in lines
    assert "# TYPE webgym_steps gauge" in lines
    assert not any("success" in line or "reason" in line for line in lines)
    # What is not said any more is not shown any more.
    numbers.set({"steps": 6, "loss": float("nan")})
    lines = generate_latest(registry).decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'webgym_steps{program="learner-0",run="u1"} 6.0',
        'webgym_loss{program="learner-0",run="u1"} NaN',
    ]


@pytest.mark.parametrize("name", ["browser crash", "restarts_browser memory", "a.b", "1st", "ü"])
def test_a_figure_of_any_name_does_not_break_the_scrape(name: str) -> None:
    registry = CollectorRegistry()
    Numbers({"run": "u1"}, registry).set({name: 1, "steps": 2})
    assert b'webgym_steps{run="u1"} 2.0' in generate_latest(registry)


def test_json_lines_carry_run_worker_and_episode() -> None:
    stream = io.StringIO()
    configure_logging("json", run="u1", worker="worker-0", stream=stream)
    with log_context(episode="train-7"):
        logging.getLogger("webgym.test").warning("a page %s", "hangs")
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger().exception("outside")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["message"] == "a page hangs"
    assert (first["level"], first["run"], first["worker"], first["episode"]) == (
        "warning",
        "u1",
        "worker-0",
        "train-7",
    )
    assert "episode" not in second
    assert "ValueError: odd" in second["trace"]


def test_text_is_one_readable_line() -> None:
    stream = io.StringIO()
    configure_logging("text", worker="worker-0", stream=stream)
    with log_context(episode="train-7"):
        logging.getLogger().info("up")
    line = stream.getvalue()
    assert line.startswith("worker-0: ")
    assert line.endswith("INFO    up  [episode=train-7]\n")


def test_off_a_terminal_json_is_the_default() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    logging.getLogger().info("up")
    assert json.loads(stream.getvalue())["message"] == "up"


def test_the_last_word_fits_and_never_raises(tmp_path: Path) -> None:
    path = tmp_path / "word"
    last_word(path, "ä" * 5000)
    assert len(path.read_bytes()) <= 4096
    assert path.read_text().endswith("ä…")
    last_word(path, "short")
    assert path.read_text() == "short"
    assert list(tmp_path.iterdir()) == [path]
    last_word(tmp_path / "no" / "folder", "lost")
