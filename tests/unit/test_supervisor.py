"""The supervisor over tiny programs: how runs end, what is restarted, and that nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import psutil
import pytest
from supervision import POLITE, SLEEP, directory, ended, nothing_stays, supervise, until

from webgym.errors import ExitCode
from webgym.process import RestartPolicy
from webgym.run.snapshot import Member, Snapshot
from webgym.rundir import RunDirectory

__all__ = ["directory", "nothing_stays"]


async def test_a_run_ends_with_its_learner_and_workers_are_drained(directory: RunDirectory) -> None:
    wait = f"""
import os, time
while not os.path.exists("{directory.path}/go"):
    time.sleep(0.01)
"""
    supervisor, link, view = supervise(directory, learner=wait, workers=2)
    run = asyncio.create_task(ended(supervisor))
    await until(lambda: all((directory.path / f"worker-{i}.up").exists() for i in range(2)))
    link.now = Snapshot(phase="done", reason="success", numbers={"steps": 10})
    (directory.path / "go").touch()
    outcome = await run
    assert (outcome.code, outcome.stop_reason, outcome.message) == (0, "success", "")
    assert (directory.path / "worker-0.drained").exists()
    assert (directory.path / "worker-1.drained").exists()
    assert outcome.peak_memory_bytes > 1_000_000
    assert outcome.restarts == {"learner": 0, "worker": 0}
    assert view.phases


async def test_workers_leave_as_soon_as_the_run_is_done(directory: RunDirectory) -> None:
    """The learner's last files need no browsers."""
    learner = f"""
import os, time
while not os.path.exists("{directory.path}/worker-0.drained"):
    time.sleep(0.01)
"""
    supervisor, link, _ = supervise(directory, learner=learner)
    run = asyncio.create_task(ended(supervisor))
    await until((directory.path / "worker-0.up").exists)
    link.now = Snapshot(phase="done", reason="success")
    assert (await run).code == 0


async def test_a_learner_that_dies_after_the_verdict_does_not_spoil_it(directory: RunDirectory) -> None:
    learner = f"""
import os, signal, time
while not os.path.exists("{directory.path}/worker-0.drained"):
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""
    supervisor, link, _ = supervise(directory, learner=learner)
    run = asyncio.create_task(ended(supervisor))
    await until((directory.path / "worker-0.up").exists)
    link.now = Snapshot(phase="done", reason="success")
    outcome = await run
    assert (outcome.code, outcome.stop_reason, outcome.restarts["learner"]) == (0, "success", 0)


async def test_programs_are_told_where_they_are(directory: RunDirectory) -> None:
    code = """
import json, os
with open(os.environ["WEBGYM_OUT"] + "/env.json", "w") as f:
    json.dump(dict(os.environ), f)
"""
    supervisor, _, _ = supervise(directory, learner=code)
    await ended(supervisor)
    import json

    env = json.loads((directory.path / "env.json").read_text())
    assert env["WEBGYM_SPEC"] == str(directory.manifest)
    assert env["WEBGYM_RUN_UID"] == directory.uid
    assert env["WEBGYM_REDIS_URL"] == "unix:///nowhere"
    assert env["WEBGYM_ID"] == "learner-0"


async def test_a_killed_worker_and_learner_come_back_and_are_counted(directory: RunDirectory) -> None:
    once = f"""
import os, signal, time
mark = "{directory.path}/killed"
if not os.path.exists(mark):
    open(mark, "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
while not os.path.exists("{directory.path}/go"):
    time.sleep(0.01)
"""
    supervisor, link, view = supervise(directory, learner=once)
    run = asyncio.create_task(ended(supervisor))
    up = directory.path / "worker-0.up"
    await until(up.exists)
    up.unlink()
    os.kill(supervisor._workers[0].pid or 0, signal.SIGKILL)
    await until(up.exists)
    link.now = Snapshot(members=(Member("worker-0", pid=1, restarts=2),))
    await until(lambda: any("started anew: browser (2 times)" in e for e in view.events))
    link.now = Snapshot(
        members=(Member("worker-0", pid=2, restarts_by_kind={"browser": 1, "actor": 1}, restarts=2),)
    )
    await until(lambda: any("started anew: actor" in e for e in view.events))
    (directory.path / "go").touch()
    outcome = await run
    assert outcome.code == 0
    assert outcome.restarts == {"learner": 1, "worker": 1, "browser": 3, "actor": 1}
    assert any("learner-0 ended (killed by SIGKILL) and is started again" in e for e in outcome.events)


@pytest.mark.parametrize(
    ("code", "want", "reason"),
    [
        (4, ExitCode.DIVERGED, "diverged"),
        (2, ExitCode.USAGE, "learner failed"),
        (9, ExitCode.FAILURE, "learner failed"),
    ],
)
async def test_a_learner_that_fails_for_good_ends_the_run(
    directory: RunDirectory, code: int, want: ExitCode, reason: str
) -> None:
    learner = f"""
import os, sys
open(os.environ["WEBGYM_TERMINATION_LOG"], "w").write("the loss is not finite")
sys.exit({code})
"""
    supervisor, _, _ = supervise(directory, learner=learner)
    outcome = await ended(supervisor)
    assert (outcome.code, outcome.stop_reason) == (want, reason)
    assert "the loss is not finite" in outcome.message
    assert "logs/learner-0.log" in outcome.message


async def test_workers_that_cannot_work_end_the_run_and_the_learner_saves(directory: RunDirectory) -> None:
    worker = f"""
import os, sys, time
while not os.path.exists("{directory.path}/learner-0.up"):
    time.sleep(0.01)
open(os.environ["WEBGYM_TERMINATION_LOG"], "w").write("no Chromium here")
sys.exit(2)
"""
    supervisor, _, _ = supervise(directory, learner=POLITE, worker=worker)
    outcome = await ended(supervisor)
    assert (outcome.code, outcome.stop_reason) == (ExitCode.USAGE, "workers failed")
    assert "no Chromium here" in outcome.message
    assert (directory.path / "learner-0.drained").exists()


async def test_one_worker_of_two_failing_does_not_end_the_run(directory: RunDirectory) -> None:
    worker = """
import os, sys, time
if os.environ["WEBGYM_ID"] == "worker-0":
    sys.exit(2)
time.sleep(60)
"""
    learner = f"""
import os, time
while not os.path.exists("{directory.path}/go"):
    time.sleep(0.01)
"""
    supervisor, _, view = supervise(directory, learner=learner, worker=worker, workers=2, worker_grace=0.2)
    run = asyncio.create_task(ended(supervisor))
    await until(lambda: any("worker-0 ended for good" in e for e in view.events))
    (directory.path / "go").touch()
    assert (await run).code == 0


async def test_the_death_of_the_broker_ends_the_run_with_a_checkpoint(directory: RunDirectory) -> None:
    supervisor, link, _ = supervise(directory, learner=POLITE)
    run = asyncio.create_task(ended(supervisor))
    await until((directory.path / "learner-0.up").exists)
    link.gone.set()
    outcome = await run
    assert (outcome.code, outcome.stop_reason) == (ExitCode.BROKER_LOST, "broker lost")
    assert "the embedded broker ended" in outcome.message
    assert (directory.path / "learner-0.drained").exists()


async def test_programs_that_die_of_the_broker_do_not_hide_its_death(directory: RunDirectory) -> None:
    supervisor, link, _ = supervise(directory, learner="raise SystemExit(3)")
    supervisor._learner.restart = RestartPolicy.never()
    run = asyncio.create_task(ended(supervisor))
    await until(lambda: supervisor._learner.ended)
    link.gone.set()
    assert (await run).stop_reason == "broker lost"


async def test_a_server_that_stays_silent_counts_as_lost(directory: RunDirectory) -> None:
    supervisor, link, _ = supervise(directory, learner=POLITE, unreachable=0.1)
    link.silent = True
    outcome = await ended(supervisor)
    assert (outcome.code, outcome.stop_reason) == (ExitCode.BROKER_LOST, "broker lost")
    assert link.abandoned


async def test_one_interrupt_drains(directory: RunDirectory) -> None:
    supervisor, _, view = supervise(directory, learner=POLITE)
    run = asyncio.create_task(ended(supervisor))
    await until(lambda: all((directory.path / f"{n}.up").exists() for n in ("learner-0", "worker-0")))
    supervisor.interrupt()
    outcome = await run
    assert (outcome.code, outcome.stop_reason) == (ExitCode.INTERRUPTED, "interrupted")
    assert (directory.path / "learner-0.drained").exists()
    assert (directory.path / "worker-0.drained").exists()
    assert any("Ctrl-C again" in e for e in view.events)


async def test_a_second_interrupt_kills(directory: RunDirectory) -> None:
    stubborn = POLITE.replace("sys.exit(0)", "pass").replace("time.sleep(60)", "\nwhile True: time.sleep(1)")
    supervisor, link, _ = supervise(directory, learner=stubborn, learner_grace=60)
    link.now = Snapshot(phase="train")
    run = asyncio.create_task(ended(supervisor))
    await until((directory.path / "learner-0.up").exists)
    supervisor.interrupt()
    await until((directory.path / "learner-0.drained").exists)
    started = time.monotonic()
    supervisor.interrupt()
    outcome = await run
    assert time.monotonic() - started < 5
    assert outcome.code == ExitCode.INTERRUPTED
    assert any("killed before" in e and "all it learned is lost" in e for e in outcome.events)


@pytest.mark.parametrize("phase", ["start", "train"])
async def test_a_second_interrupt_after_the_checkpoint_loses_nothing(
    directory: RunDirectory, phase: str
) -> None:
    """Nor does one before there was anything to save: what an earlier session saved is there."""
    stubborn = """
import os, signal, time
def save(*args):
    os.makedirs(os.environ["WEBGYM_OUT"] + "/checkpoints/step-7")
signal.signal(signal.SIGTERM, save)
open(os.environ["WEBGYM_OUT"] + "/up", "w").close()
while True:
    time.sleep(1)
"""
    (directory.checkpoints / "step-5").mkdir(parents=True)
    if phase == "start":
        stubborn = stubborn.replace("step-7", "elsewhere")
    supervisor, link, _ = supervise(directory, learner=stubborn, learner_grace=60)
    link.now = Snapshot(phase=phase)
    run = asyncio.create_task(ended(supervisor))
    await until((directory.path / "up").exists)
    await until(lambda: supervisor._outcome.last.phase == phase)
    supervisor.interrupt()
    await until(lambda: len(list(directory.checkpoints.iterdir())) == 2)
    supervisor.interrupt()
    outcome = await run
    assert outcome.code == ExitCode.INTERRUPTED
    assert not any("killed before" in e for e in outcome.events)


@pytest.mark.parametrize(
    ("phase", "limit", "reason"),
    [("train", "training", "overrun"), ("evaluate", "evaluation", "overrun"), ("train", "total", "deadline")],
)
async def test_budgets_overrun_by_far_end_the_run(
    directory: RunDirectory, phase: str, limit: str, reason: str
) -> None:
    supervisor, link, _ = supervise(directory, learner=POLITE, **{limit: 0.2})
    link.now = Snapshot(phase=phase)
    run = asyncio.create_task(ended(supervisor))
    outcome = await run
    assert (outcome.code, outcome.stop_reason) == (ExitCode.FAILURE, reason)


async def test_a_learner_that_somebody_ends_is_not_a_finished_run(directory: RunDirectory) -> None:
    supervisor, link, _ = supervise(directory, learner="pass")
    link.now = Snapshot(phase="train")
    outcome = await ended(supervisor)
    assert (outcome.code, outcome.stop_reason) == (ExitCode.FAILURE, "learner left")
    assert "--resume" in outcome.message


async def test_a_program_that_is_not_there_is_one_line(directory: RunDirectory) -> None:
    supervisor, _, _ = supervise(directory, learner="pass")
    supervisor._learner.argv = ["/nonexistent/learner"]
    outcome = await ended(supervisor)
    assert outcome.code == ExitCode.FAILURE
    assert "/nonexistent/learner" in outcome.message


async def test_what_programs_leave_behind_is_killed(directory: RunDirectory) -> None:
    """A process that left its group and its parent is still found."""
    learner = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", {SLEEP!r}], start_new_session=True)
open("{directory.path}/pid", "w").write(str(child.pid))
"""
    supervisor, _, _ = supervise(directory, learner=learner)
    await ended(supervisor)
    pid = int((directory.path / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


# --- programs that keep ending, and programs that hang ---


async def test_what_the_learner_wants_to_be_read_is_shown_once_and_kept(directory: RunDirectory) -> None:
    supervisor, link, view = supervise(directory, learner=POLITE)
    run = asyncio.create_task(ended(supervisor))
    link.now = Snapshot(phase="train", notices=("step-9 is damaged",), checkpoint="step-8")
    await until(lambda: view.warnings)
    link.now = Snapshot(phase="train", notices=("step-9 is damaged", "another"), checkpoint="step-10")
    await until(lambda: len(view.warnings) == 2)
    supervisor.interrupt()
    outcome = await run
    assert view.warnings == ["step-9 is damaged", "another"]
    assert [e for e in outcome.events if e in view.warnings] == view.warnings
    assert outcome.checkpoint == "step-8"
