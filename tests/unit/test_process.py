from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from webgym.errors import ExitCode, RunError
from webgym.process import Exit, ManagedProcess, ProcessState, RestartPolicy, describe_exit, drain_all

QUICK = RestartPolicy(max_failures=3, initial_delay=0.01, max_delay=0.02)


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


async def until(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        await asyncio.sleep(0.01)


def open_descriptors() -> int:
    return psutil.Process().num_fds()


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_a_finished_program_is_not_restarted() -> None:
    process = ManagedProcess("job", python("print('hello')"), restart=QUICK)
    await process.start()
    ended = await process.wait()
    assert (ended.code, process.state, process.restarts) == (0, ProcessState.FINISHED, 0)
    assert not process.running


async def test_output_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    process = ManagedProcess(
        "job", python("import sys; print('out'); print('err', file=sys.stderr)"), log=log
    )
    await process.start()
    await process.wait()
    assert sorted(log.read_text().split()) == ["err", "out"]


async def test_a_failing_program_is_restarted_until_the_cap_and_says_why(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    seen: list[tuple[Exit, float | None]] = []
    process = ManagedProcess(
        "job",
        python("print('try'); raise SystemExit(1)"),
        log=log,
        restart=QUICK,
        on_exit=lambda p, e, delay: seen.append((e, delay)),
    )
    await process.start()
    ended = await process.wait()
    assert ended.code == 1
    assert process.state is ProcessState.FAILED
    assert process.restarts == 3
    assert log.read_text().count("try") == 4
    assert "4th time" in process.failure
    assert "exit 1 (failure)" in process.failure
    assert [delay for _, delay in seen] == [0.01, 0.02, 0.02, None]


@pytest.mark.parametrize("code", [ExitCode.USAGE, ExitCode.DIVERGED])
async def test_what_trying_again_cannot_change_is_final(code: ExitCode) -> None:
    process = ManagedProcess("job", python(f"raise SystemExit({int(code)})"), restart=QUICK)
    await process.start()
    await process.wait()
    assert process.state is ProcessState.FAILED
    assert process.restarts == 0


async def test_a_program_that_never_worked_is_not_tried_again() -> None:
    policy = RestartPolicy(max_failures=3, initial_delay=0.01, proving_seconds=10)
    failing = ManagedProcess("job", python("raise SystemExit(1)"), restart=policy)
    killed = ManagedProcess("job", python("import os; os.kill(os.getpid(), 9)"), restart=policy)
    for process in (failing, killed):
        await process.start()
        await process.wait()
    assert (failing.restarts, failing.state) == (0, ProcessState.FAILED)
    assert killed.restarts == 3


async def test_the_last_word_is_part_of_the_reason(tmp_path: Path) -> None:
    word = tmp_path / "word"
    process = ManagedProcess(
        "job",
        python(f"open({str(word)!r}, 'w').write('no such task: x'); raise SystemExit(2)"),
        last_word=word,
    )
    await process.start()
    await process.wait()
    assert process.failure == "job: no such task: x"
    assert process.exits[-1].reason == "exit 2 (usage): no such task: x"


async def test_a_killed_program_comes_back_and_the_signal_is_named() -> None:
    process = ManagedProcess("job", python("import time; time.sleep(60)"), restart=QUICK)
    await process.start()
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: process.pid not in (None, first))
    assert process.restarts == 1
    assert process.exits[-1].reason == "killed by SIGKILL"
    await process.drain(0.5)
    assert not process.running


async def test_drain_lets_the_program_end_in_its_own_way(tmp_path: Path) -> None:
    code = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *a: sys.exit(0))
open(sys.argv[1], 'w').close()
time.sleep(60)
"""
    ready = tmp_path / "ready"
    process = ManagedProcess("job", [*python(code), str(ready)], restart=QUICK)
    await process.start()
    await until(ready.exists)
    ended = await process.drain(10)
    assert ended is not None
    assert ended.code == 0
    assert process.state is ProcessState.FINISHED


async def test_drain_kills_a_program_that_ignores_it_and_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])
open(sys.argv[1] + '.tmp', 'w').write(f'{child.pid}')
os.rename(sys.argv[1] + '.tmp', sys.argv[1])
time.sleep(60)
"""
    process = ManagedProcess("job", [*python(code), str(pids)], restart=QUICK)
    await process.start()
    await until(pids.exists)
    child = int(pids.read_text())
    started = time.monotonic()
    ended = await process.drain(0.2)
    assert time.monotonic() - started < 5
    assert ended is not None
    assert ended.code == -signal.SIGKILL
    await until(lambda: gone(child))


async def test_what_a_crashed_program_leaves_in_its_group_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])
open(sys.argv[1], 'w').write(f'{child.pid}')
os._exit(1)
"""
    process = ManagedProcess("job", [*python(code), str(pids)], restart=RestartPolicy.never())
    await process.start()
    await process.wait()
    await until(lambda: gone(int(pids.read_text())))


async def test_drain_during_backoff_starts_nothing_more() -> None:
    process = ManagedProcess(
        "job", python("raise SystemExit(1)"), restart=RestartPolicy(initial_delay=60, max_delay=60)
    )
    await process.start()
    await until(lambda: process.state is ProcessState.BACKOFF)
    started = time.monotonic()
    await process.drain(5)
    assert time.monotonic() - started < 2
    assert process.restarts == 0
    assert process.state is ProcessState.FINISHED


async def test_a_stopped_program_is_killed_all_the_same() -> None:
    process = ManagedProcess("job", python("import time; time.sleep(60)"))
    await process.start()
    pid = process.pid
    assert pid is not None
    process.signal(signal.SIGSTOP)
    await until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    ended = await process.drain(0.2)
    assert ended is not None
    assert ended.code == -signal.SIGKILL


async def test_descriptors_are_handed_on_anew_at_each_start() -> None:
    made: list[int] = []

    def descriptors() -> list[int]:
        read, write = os.pipe()
        os.write(write, f"{len(made)}".encode())
        os.close(write)
        made.append(read)
        return [read]

    code = """
import os
for fd in range(3, 64):
    try:
        raise SystemExit(0 if os.read(fd, 8) == b'1' else 1)
    except OSError:
        pass
"""
    process = ManagedProcess("job", python(code), pass_fds=descriptors, restart=QUICK)
    await process.start()
    ended = await process.wait()
    for fd in made:
        os.close(fd)
    assert ended.code == 0
    assert len(made) == 2


async def test_a_program_that_cannot_be_started_is_one_line() -> None:
    process = ManagedProcess("job", ["/nonexistent/program"])
    with pytest.raises(RunError, match="job cannot be started: /nonexistent/program"):
        await process.start()


async def test_cancelling_the_owner_ends_the_program() -> None:
    process = ManagedProcess("job", python("import time; time.sleep(60)"))
    await process.start()
    pid = process.pid
    assert pid is not None
    assert process._task is not None
    process._task.cancel()
    await until(lambda: gone(pid))


async def test_no_descriptor_leaks_over_restarts() -> None:
    before = open_descriptors()
    processes = [ManagedProcess(f"job-{i}", python("raise SystemExit(1)"), restart=QUICK) for i in range(3)]
    for process in processes:
        await process.start()
    await asyncio.gather(*(p.wait() for p in processes))
    await drain_all(processes)
    assert open_descriptors() == before


STUBBORN = "import time, signal; signal.signal(15, signal.SIG_IGN); time.sleep(60)"

PARENT = """
import asyncio, os, sys
from pathlib import Path
from webgym.process import ManagedProcess

child = '''
import asyncio, sys
from webgym.process import ManagedProcess
async def main():
    p = ManagedProcess("inner", [sys.executable, "-S", "-c", "STUBBORN"])
    await p.start()
    print(p.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
'''

async def main():
    log = Path(sys.argv[1])
    p = ManagedProcess("outer", [sys.executable, "-c", child], log=log)
    q = ManagedProcess("plain", [sys.executable, "-S", "-c", "STUBBORN"])
    await p.start()
    await q.start()
    while not log.read_text().strip():
        await asyncio.sleep(0.01)
    print(p.pid, q.pid, log.read_text().strip(), flush=True)
    END
asyncio.run(main())
""".replace("STUBBORN", STUBBORN)


@pytest.mark.parametrize(
    "end",
    ["await asyncio.sleep(60)", "raise RuntimeError('fault')", "os._exit(3)", "sys.exit(0)"],
    ids=["killed", "exception", "os._exit", "sys.exit"],
)
def test_nothing_outlives_its_parent(tmp_path: Path, end: str) -> None:
    """Children that ignore SIGTERM, and their children, are gone however the parent ends."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.replace("END", end), str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 3
    if "sleep" in end:
        assert not any(gone(pid) for pid in pids)
        parent.kill()
    parent.wait(timeout=10)
    parent.stdout.close()
    deadline = time.monotonic() + 5
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < deadline, f"left behind: {[p for p in pids if not gone(p)]}"
        time.sleep(0.02)


def test_delays_double_up_to_a_cap_and_old_failures_are_forgiven() -> None:
    policy = RestartPolicy(max_failures=4, window_seconds=10, initial_delay=1, max_delay=3)
    assert [policy.delay([0.0] * n, 0.0) for n in range(1, 6)] == [1, 2, 3, 3, None]
    assert policy.delay([0, 1, 2, 3, 20.0], 20.0) == 1
    assert RestartPolicy.never().delay([0.0], 0.0) is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit 0 (ok)"),
        (3, "exit 3 (broker lost)"),
        (77, "exit 77"),
        (-15, "killed by SIGTERM"),
        (-64, "killed by SIGRTMAX"),
        (130, "exit 130 (interrupted)"),
        (139, "exit 139 (SIGSEGV)"),
    ],
)
def test_exits_in_words(code: int, words: str) -> None:
    assert describe_exit(code) == words
    assert "SIGKILL" in describe_exit(137)
    assert "memory" in describe_exit(137)


async def test_a_child_that_hangs_is_ended_with_a_reason_and_started_again(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    code = "import faulthandler, signal, os; faulthandler.enable(); print('up', flush=True); signal.pause()"
    process = ManagedProcess("job", python(code), log=log, restart=QUICK)
    await process.start()
    await until(lambda: log.exists() and log.read_text().count("up") == 1)
    await process.fail("it stood still")
    await until(lambda: log.read_text().count("up") == 2)
    assert process.exits[-1].reason == "it stood still"
    assert "most recent call first" in log.read_text()
    # One that is stopped hears nothing but SIGKILL.
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    await process.fail("it stood still again", patience=0.05)
    await until(lambda: log.read_text().count("up") == 3)
    assert [e.reason for e in process.exits] == ["it stood still", "it stood still again"]
    assert process.restarts == 2
    await process.drain(0)


async def test_without_progress_failures_never_grow_old_and_progress_forgives_them() -> None:
    forever = RestartPolicy(max_failures=2, window_seconds=float("inf"), initial_delay=0.01, max_delay=0.01)
    process = ManagedProcess("job", python("import sys; sys.exit(7)"), restart=forever)
    seen = []
    process.on_exit = lambda p, ended, delay: (seen.append(delay), len(seen) == 2 and p.note_progress())  # type: ignore[func-returns-value]
    await process.start()
    await process.wait()
    assert process.state is ProcessState.FAILED
    # Two, forgiven, then two more and the one too many.
    assert len(seen) == 5
    assert process.failure == "job: exit 7"


async def test_failures_in_a_row_are_counted_in_the_last_line() -> None:
    forever = RestartPolicy(max_failures=4, window_seconds=float("inf"), initial_delay=0.01, max_delay=0.01)
    process = ManagedProcess("job", python("import sys; sys.exit(7)"), restart=forever)
    await process.start()
    await process.wait()
    assert process.failure == "job ended for the 5th time in a row: exit 7"
