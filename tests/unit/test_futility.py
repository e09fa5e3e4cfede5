"""The supervisor over programs that keep ending, and programs that hang."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from dataclasses import replace

from supervision import POLITE, directory, ended, nothing_stays, supervise, until

from webgym.errors import ExitCode
from webgym.process import RestartPolicy
from webgym.run.snapshot import Member, Snapshot
from webgym.rundir import RunDirectory

__all__ = ["directory", "nothing_stays"]


DYING = """
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_a_worker_that_keeps_dying_ends_the_run_however_slowly(directory: RunDirectory) -> None:
    """The window of the restart policy never sees more than one end; what counts is that nothing came of them."""
    supervisor, _, _ = supervise(directory, learner=POLITE, worker=DYING, futile_ends=3)
    worker = supervisor._workers[0]
    worker.restart = RestartPolicy(max_failures=2, window_seconds=0, initial_delay=0.01)
    outcome = await ended(supervisor)
    assert (outcome.code, outcome.stop_reason) == (ExitCode.FAILURE, "no progress")
    assert (
        "worker-0 has ended 4 times without an episode completed in between: killed by SIGKILL"
        in outcome.message
    )
    assert "logs/worker-0.log" in outcome.message
    assert outcome.restarts["worker"] == 3
    assert worker.ended


async def test_a_worker_that_gets_something_done_between_its_deaths_may_go_on(
    directory: RunDirectory,
) -> None:
    supervisor, link, _ = supervise(directory, learner=POLITE, worker=DYING, futile_ends=3)
    supervisor._workers[0].restart = RestartPolicy(max_failures=2, window_seconds=0, initial_delay=0.05)
    run = asyncio.create_task(ended(supervisor))

    def one_more() -> bool:
        link.now = replace(link.now, completed=supervisor._workers[0].restarts)
        return supervisor._workers[0].restarts > 8

    await until(one_more, 20)
    supervisor.interrupt()
    assert (await run).stop_reason == "interrupted"


async def test_a_learner_that_dies_before_each_checkpoint_ends_the_run(directory: RunDirectory) -> None:
    supervisor, link, _ = supervise(directory, learner=DYING, futile_ends=2)
    link.now = Snapshot(phase="train", completed=5)
    supervisor._learner.restart = RestartPolicy(max_failures=2, window_seconds=0, initial_delay=0.01)
    outcome = await ended(supervisor)
    assert outcome.stop_reason == "no progress"
    assert "learner-0 has ended 3 times without a new checkpoint in between" in outcome.message


async def test_processes_of_a_worker_that_keep_dying_end_the_run(directory: RunDirectory) -> None:
    """Whoever starts them: the worker, whose own limit begins anew with each of its lives, or several workers."""
    supervisor, link, view = supervise(directory, learner=POLITE, futile_ends=3)
    run = asyncio.create_task(ended(supervisor))
    log = directory.log("worker-0")
    log.write_text(
        json.dumps({"time": "2001-01-01T00:00:00.000Z", "level": "error", "message": "an old story"}) + "\n"
        + json.dumps({"time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime())}.000Z", "level": "warning",
                      "message": "worker-0/actor-0: the browser lacks libnss3"}) + "\n"
    )  # fmt: skip
    for pid in (1, 2):  # never more than two in one life
        ends = 2
        processes = {"worker-0/actor-0": 5, "worker-0/inference-0": 6}
        link.now = Snapshot(
            phase="train",
            members=(
                Member("worker-0", pid=pid, restarts=ends, restarts_by_kind={"actor": ends}, pids=processes),
            ),
        )
        await until(lambda lives=pid: sum("started anew: actor" in e for e in view.events) == lives)
    outcome = await run
    assert (outcome.code, outcome.stop_reason) == (ExitCode.FAILURE, "no progress")
    assert "the actor process of worker-0 has ended 4 times" in outcome.message
    assert "libnss3" in outcome.message
    assert "an old story" not in outcome.message


async def test_a_worker_that_gives_up_ends_the_run_at_once_whenever(directory: RunDirectory) -> None:
    """It has tried long to start browsers: what it says then is the run's last word."""
    worker = f"""
import os, sys, time
mark = "{directory.path}/second"
if not os.path.exists(mark):
    open(mark, "w").close()
    sys.exit(1)
while not os.path.exists("{directory.path}/learner-0.up"):
    time.sleep(0.01)
open(os.environ["WEBGYM_TERMINATION_LOG"], "w").write("Chromium cannot be started: no libnss3")
sys.exit({int(ExitCode.UNAVAILABLE)})
"""
    supervisor, link, _ = supervise(directory, learner=POLITE, worker=worker)
    link.now = Snapshot(phase="train", completed=3)
    outcome = await ended(supervisor)
    assert (outcome.code, outcome.stop_reason) == (ExitCode.FAILURE, "workers failed")
    assert outcome.message.startswith("worker-0: Chromium cannot be started: no libnss3; see ")
    assert outcome.restarts["worker"] == 1


async def test_a_program_that_hangs_is_killed_and_started_again(directory: RunDirectory) -> None:
    supervisor, link, view = supervise(directory, learner=POLITE, silent=0.5)
    run = asyncio.create_task(ended(supervisor))
    up = directory.path / "worker-0.up"
    await until(up.exists)
    up.unlink()
    first = supervisor._workers[0].pid or 0
    os.kill(first, signal.SIGSTOP)
    # The learner speaks on; a process that is not ours, and one that is gone, are left alone.
    beats = iter(range(1, 10**6))

    def speak() -> bool:
        link.now = Snapshot(
            phase="train",
            members=(
                Member("learner-0", pid=supervisor._learner.pid or 0, time=next(beats)),
                Member("worker-0", pid=first, time=1.0),
                Member("worker-0.0", pid=os.getpid(), time=1.0),
            ),
        )
        return up.exists()

    await until(speak, 20)
    assert "worker-0 has not been heard of for 0 s: killed" in view.events
    assert supervisor._learner.restarts == 0
    supervisor.interrupt()
    assert (await run).restarts["worker"] == 1


async def test_a_run_in_which_nothing_moves_ends_with_what_was_complained_of(directory: RunDirectory) -> None:
    learner = POLITE.replace(
        "time.sleep",
        """
print('{"time": "2999-01-01T00:00:00Z", "level": "error", "message": "the page is gone"}', flush=True)
time.sleep""",
    )
    supervisor, link, _ = supervise(directory, learner=learner, still=2.0)
    link.now = Snapshot(phase="train", numbers={"steps": 3, "updates": 1})
    outcome = await ended(supervisor)
    assert (outcome.code, outcome.stop_reason) == (ExitCode.FAILURE, "stuck")
    assert outcome.message.startswith("nothing has moved for ")
    assert outcome.message.endswith("; learner-0: the page is gone")
