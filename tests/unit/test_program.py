"""The program contract: environment in, drain on signals, one line and an exit code out."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from webgym.errors import UsageError
from webgym.program import Drain, ProgramContext

ENVIRON = {
    "WEBGYM_SPEC": "/run/spec.yaml",
    "WEBGYM_RUN_UID": "u1",
    "WEBGYM_REDIS_URL": "unix:///tmp/s",
    "WEBGYM_OUT": "/run/out",
    "WEBGYM_ID": "worker-0",
}


def test_context_from_the_environment_and_back() -> None:
    context = ProgramContext.from_env(
        {**ENVIRON, "WEBGYM_METRICS_PORT": "9000", "WEBGYM_TERMINATION_LOG": "/t"}
    )
    assert context.spec_path == Path("/run/spec.yaml")
    assert (context.id, context.metrics_port, context.termination_log) == ("worker-0", 9000, Path("/t"))
    assert context.task_path == ()
    assert ProgramContext.from_env(context.environ()) == context
    context = replace(context, task_path=(Path("/home/me"), Path("/home/me/tasks")))
    assert ProgramContext.from_env(context.environ()) == context


@pytest.mark.parametrize("name", list(ENVIRON))
def test_a_missing_variable_is_named(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is not set"):
        ProgramContext.from_env({k: v for k, v in ENVIRON.items() if k != name})


@pytest.mark.parametrize("port", ["http", "-1", "65536", "²"])
def test_a_bad_port_is_refused(port: str) -> None:
    with pytest.raises(UsageError, match="WEBGYM_METRICS_PORT"):
        ProgramContext.from_env({**ENVIRON, "WEBGYM_METRICS_PORT": port})


def test_a_drain_wakes_every_waiter_and_keeps_the_first_reason() -> None:
    drain = Drain()
    assert not drain.wait(0)
    woken: list[bool] = []
    threads = [threading.Thread(target=lambda: woken.append(drain.wait(10))) for _ in range(3)]
    for thread in threads:
        thread.start()
    drain.request("first")
    drain.request("second")
    for thread in threads:
        thread.join(10)
    assert woken == [True] * 3
    assert drain.reason == "first"


async def test_a_drain_wakes_tasks() -> None:
    drain = Drain()
    tasks = [asyncio.create_task(drain.wait_async()) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert not any(t.done() for t in tasks)
    threading.Thread(target=drain.request, args=("thread",)).start()
    await asyncio.wait_for(asyncio.gather(*tasks), 5)
    await asyncio.wait_for(drain.wait_async(), 5)


def program(tmp_path: Path, body: str, **environ: str) -> subprocess.Popen[str]:
    """Start a program whose main has this body."""
    code = f"""
import sys
from webgym.errors import *
from webgym.program import *
def main(context, drain):
    {body}
sys.exit(run_program(main))
"""
    env = {
        **os.environ,
        **ENVIRON,
        "WEBGYM_TERMINATION_LOG": str(tmp_path / "word"),
        "WEBGYM_LOG": "text",
        **environ,
    }
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("body", "code", "word"),
    [
        ("return 0", 0, None),
        ("return 7", 7, None),
        ("raise TaskError('no such task: x')", 2, "no such task: x"),
        ("raise BrokerError('Redis is gone')", 3, "Redis is gone"),
        ("raise ValueError('odd')", 1, "unexpected ValueError: odd"),
    ],
)
def test_how_a_program_ends(tmp_path: Path, body: str, code: int, word: str | None) -> None:
    child = program(tmp_path, body)
    _, err = child.communicate(timeout=20)
    assert child.returncode == code
    file = tmp_path / "word"
    assert (file.read_text() if file.exists() else None) == word
    assert ("Traceback" in err) == ("odd" in body)
    if word:
        assert word in err


def test_a_missing_environment_is_one_line(tmp_path: Path) -> None:
    child = program(tmp_path, "return 0", WEBGYM_SPEC="")
    _, err = child.communicate(timeout=20)
    assert child.returncode == 2
    assert err.splitlines() == [
        "webgym: environment variable WEBGYM_SPEC is not set: it must hold the path of the run's manifest"
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_ask_for_a_drain(tmp_path: Path, number: signal.Signals) -> None:
    child = program(tmp_path, "print('up', flush=True); drain.wait(20); print(drain.reason); return 5")
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(number)
    out, _ = child.communicate(timeout=20)
    assert (child.returncode, out.strip()) == (5, number.name)


def test_a_second_interrupt_breaks_off(tmp_path: Path) -> None:
    body = "print('up', flush=True); drain.wait(20); print('asked', flush=True); import time; time.sleep(20)"
    child = program(tmp_path, body)
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=10)
    assert child.returncode == 130


def test_the_end_of_the_lifeline_asks_and_then_forces(tmp_path: Path) -> None:
    body = "print('up', flush=True); drain.wait(20); print(drain.reason, flush=True); return 0"
    child = program(tmp_path, body, WEBGYM_LIFELINE="1")
    assert child.stdout is not None
    assert child.stdin is not None
    child.stdout.readline()
    child.stdin.close()
    assert child.stdout.readline().strip() == "the parent is gone"
    assert child.wait(10) == 0
    for stream in (child.stdout, child.stderr):
        assert stream is not None
        stream.close()

    code = """
import time
from webgym.program import Drain, watch_lifeline
watch_lifeline(Drain(), 0.1)
print("up", flush=True)
time.sleep(20)
"""
    hung = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "WEBGYM_LIFELINE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert hung.stdin is not None
    assert hung.stdout is not None
    hung.stdout.readline()
    hung.stdin.close()
    started = time.monotonic()
    assert hung.wait(10) == 1
    assert time.monotonic() - started < 5
    hung.stdout.close()


def test_stdin_means_nothing_without_a_lifeline(tmp_path: Path) -> None:
    """In a pod stdin is /dev/null, whose end must not end the program."""
    child = program(tmp_path, "print(drain.wait(0.3)); return 0")
    out, _ = child.communicate(timeout=20)  # Closes stdin.
    assert out.strip() == "False"
