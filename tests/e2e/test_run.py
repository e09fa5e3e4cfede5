"""A whole run from the command line: what it leaves, what it prints, and how it stands being killed in parts."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from e2e_run import MANIFEST, Start, alive
from PIL import Image

from webgym.manifest import load_manifest
from webgym.rundir import read_json_lines

TWO_TASKS = MANIFEST.replace(
    "    name: miniwob.click-test\n", "    - name: miniwob.click-test\n    - name: miniwob.click-test-2\n"
)
assert TWO_TASKS != MANIFEST


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, start: Start, locked_redis: Path
) -> tuple[Path, dict[str, Any]]:
    """A run on a server with a password that ended by its budget, and the object it printed."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "demo.yaml").write_text(TWO_TASKS)
    redis = ("--set", f"redis.url=unix://{locked_redis}", "--set", "redis.passwordFrom.env=SECRET")
    arguments = ("run", "demo.yaml", "--out", "out", "--json", "--set", "seed=3", *redis)
    running = start(folder, *arguments, out=folder / "out", SECRET="open-sesame")
    seen: set[psutil.Process] = set()
    while running.process.poll() is None:
        seen |= set(running.descendants())
        time.sleep(0.2)
    code, out, err = running.end()
    assert code == 0, err
    assert len(seen) > 5
    assert [p for p in seen if alive(p)] == []
    assert "training" in err  # Progress, off a terminal, goes to stderr.
    return folder / "out", json.loads(out)


def test_json_is_all_there_is_on_stdout_and_says_how_it_went(finished: tuple[Path, dict[str, Any]]) -> None:
    _, result = finished
    assert result["evaluation"]["episodes"] == 20
    assert 0 <= result["evaluation"]["success"] <= 1
    assert result["steps"] >= 300
    assert result["steps_per_second"] > 0
    assert result["seconds"] > result["training_seconds"] > 0
    assert result["stop_reason"] == "steps"
    assert result["updates"] > 0
    assert 0 < result["peak_memory_bytes"] < 6e9


def test_what_a_run_leaves(finished: tuple[Path, dict[str, Any]]) -> None:
    out, result = finished
    manifest = load_manifest(out / "run.yaml")
    assert manifest.spec.seed == 3
    assert manifest.spec.learner.batch_size == 32
    lines = list(read_json_lines(out / "metrics.jsonl"))
    assert lines[-1]["steps"] == result["steps"]
    assert list((out / "tensorboard").iterdir())
    assert list((out / "checkpoints").glob("step-*"))
    for name in ("learning_curve.png", "film.png"):
        with Image.open(out / name) as image:
            assert image.width > 500
    assert json.loads((out / "summary.json").read_text())["steps"] == result["steps"]
    page = (out / "report.html").read_text()
    assert "miniwob.click-test" in page
    assert "data:image/png" in page


def test_a_run_leaves_neither_secrets_on_disk_nor_keys_in_a_server_of_the_user(
    finished: tuple[Path, dict[str, Any]], locked_redis: Path
) -> None:
    out, _ = finished
    written = [p for p in out.rglob("*") if p.is_file() and b"open-sesame" in p.read_bytes()]
    assert written == []
    with redis.Redis(unix_socket_path=str(locked_redis), password="open-sesame") as client:
        assert client.keys("webgym:*") == []


def test_both_tasks_are_practised_and_told_apart(finished: tuple[Path, dict[str, Any]]) -> None:
    out, result = finished
    names = {"miniwob.click-test", "miniwob.click-test-2"}
    assert set(result["practice"]) == set(result["evaluation"]["tasks"]) == names
    assert sum(task["share"] for task in result["practice"].values()) == pytest.approx(1.0, abs=0.01)
    trained = Counter(
        line["task"] for line in read_json_lines(out / "episodes.jsonl") if line["purpose"] == "train"
    )
    # Half of the practice goes by weight alone, whatever the progress.
    assert all(trained[name] >= 0.2 * trained.total() for name in names)
    assert "share of the practice" in (out / "report.html").read_text()


def test_every_episode_counts_once(finished: tuple[Path, dict[str, Any]]) -> None:
    out, _ = finished
    entries = list(read_json_lines(out / "episodes.jsonl"))
    assert max(Counter(e["episode"] for e in entries).values()) == 1
    trained = [e for e in entries if e["purpose"] == "train"]
    assert len(trained) == finished[1]["episodes"]
    assert sum(e["steps"] for e in trained) == finished[1]["steps"] >= 300
    train = {e["seed"] for e in entries if e["purpose"] == "train"}
    judged = {e["seed"] for e in entries if e["purpose"] == "evaluate"}
    assert judged
    assert not train & judged


@pytest.mark.long
def test_a_checkpoint_is_judged_again(finished: tuple[Path, dict[str, Any]], start: Start) -> None:
    out, _ = finished
    arguments = ("eval", "out", "--episodes", "10", "--seed", "9", "--json", "--quiet")
    # Twice: the second must not take the first one's episodes for its own.
    start(out.parent, *arguments, out=out, SECRET="open-sesame").end()
    running = start(out.parent, *arguments, out=out, SECRET="open-sesame")
    code, printed, err = running.end()
    assert code == 0, err
    result = json.loads(printed)
    assert result["evaluation"]["episodes"] == 10
    assert result["asked"] == "best"
    assert Path(result["checkpoint"]).parent == (out / "checkpoints").resolve()
    assert result["events"] == []
    assert err == ""
    assert json.loads((out / "evaluation-2.json").read_text()) == result["evaluation"]


@pytest.mark.long
def test_a_run_lives_through_kills_and_can_be_resumed(tmp_path: Path, start: Start) -> None:
    (tmp_path / "demo.yaml").write_text(MANIFEST)
    out = tmp_path / "out"
    limit = ("--set", "stop.steps=1000000")
    running = start(tmp_path, "run", "demo.yaml", "--out", "out", "--json", *limit, out=out)
    running.until(lambda: list((out / "checkpoints").glob("step-*")))

    # Parts die; the run goes on.
    first = running.kill("webgym", "learner").pid
    running.kill("browser_process")
    running.kill("--remote-debugging-pipe")
    running.until(lambda: [p for p in running.descendants("webgym", "learner") if p.pid != first])
    before = running.last("steps")
    running.until(lambda: running.last("steps") > before + 20)

    # One stands still; what stands still is killed in the end.
    stopped = running.descendants("browser_process")[0]
    stopped.suspend()
    running.until(lambda: not alive(stopped))
    before = running.last("steps")
    running.until(lambda: running.last("steps") > before + 20)

    # Ctrl-C: checkpoint, then report.
    running.process.send_signal(signal.SIGINT)
    code, printed, err = running.end()
    assert code == 130, err
    result = json.loads(printed)
    assert result["stop_reason"] == "interrupted"
    assert result["restarts"]["learner"] == 1
    assert sum(count for kind, count in result["restarts"].items() if kind != "learner") >= 1
    assert (out / "report.html").is_file()
    steps = result["steps"]
    lines = list(read_json_lines(out / "metrics.jsonl"))
    assert [line["steps"] for line in lines] == sorted(line["steps"] for line in lines)
    entries = list(read_json_lines(out / "episodes.jsonl"))
    assert len([e for e in entries if e["purpose"] == "train"]) == result["episodes"]
    assert result["checkpoint"].endswith(f"step-{steps}")

    # Resumed with its newest checkpoint damaged, it says so and counts on. Then its broker dies: an error and a
    # checkpoint.
    newest = out / "checkpoints" / f"step-{steps}" / "acting.npz"
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    running = start(tmp_path, "run", "demo.yaml", "--out", "out", "--resume", "--quiet", *limit, out=out)
    running.until(lambda: running.last("steps") > steps + 20)
    running.kill("valkey")
    code, printed, err = running.end()
    assert code == 3
    assert [
        line for line in err.splitlines() if f"step-{steps} is damaged" in line and "in its stead" in line
    ]
    assert "Redis" in err
    assert "Traceback" not in err
    after = max(int(p.name.partition("-")[2]) for p in (out / "checkpoints").glob("step-*"))
    assert after > steps
    entries = list(read_json_lines(out / "episodes.jsonl"))
    assert max(Counter(e["episode"] for e in entries).values()) == 1

    # Resumed once more, the supervisor itself is killed: nobody stays behind.
    running = start(tmp_path, "run", "--out", "out", "--resume", "--quiet", out=out)
    running.until(lambda: running.last("steps") > after + 20)
    everyone = running.descendants()
    assert len(everyone) > 5
    running.process.kill()
    running.process.wait()
    end = time.monotonic() + 60
    while left := [p for p in everyone if alive(p)]:
        assert time.monotonic() < end, left
        time.sleep(0.05)

    # Nothing good to resume from: one line, and the earlier results stay.
    for state in (out / "checkpoints").glob("step-*/state.json"):
        state.write_text(state.read_text()[:50])
    summary = (out / "summary.json").read_bytes()
    running = start(tmp_path, "run", "--out", "out", "--resume", "--quiet", out=out)
    code, printed, err = running.end()
    assert (code, printed) == (1, "")
    assert len(err.splitlines()) == 1
    assert "damaged" in err
    assert (out / "summary.json").read_bytes() == summary
