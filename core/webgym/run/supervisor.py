"""Watches over one run on this machine: starts its programs, follows their progress, ends them in good
order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from webgym.errors import ExitCode, WebGymError
from webgym.process import Exit, ManagedProcess, ProcessState, RestartPolicy, drain_all
from webgym.program import ProgramContext
from webgym.run.caretaker import Caretaker
from webgym.run.complaints import last_complaint
from webgym.run.futility import FutileEnds
from webgym.run.live import View
from webgym.run.plan import Limits, Link, Outcome, Programs
from webgym.run.snapshot import Snapshot
from webgym.run.summary import newest_checkpoint
from webgym.run.tree import adopt_orphans, kill_descendants, reap_orphans, tree_memory
from webgym.rundir import RunDirectory

__all__ = ["Supervisor"]

logger = logging.getLogger(__name__)


class Supervisor:
    """Runs the programs of one run to their end.

    The learner decides when training is over; the supervisor ends a run only when it has to: on request,
    when a part is lost for good, or when a budget has been overrun by far.
    """

    def __init__(
        self,
        directory: RunDirectory,
        link: Link,
        view: View,
        programs: Programs,
        *,
        uid: str | None = None,
        limits: Limits | None = None,
        restart: RestartPolicy | None = None,
    ) -> None:
        """Prepare; :meth:`run` starts.

        Args:
            directory: the run's folder; holds the manifest that programs read.
            link: the run's Redis.
            view: where progress is shown.
            programs: what to start.
            uid: identity in Redis; None for the folder's own.
            limits: how long to wait for what.
            restart: when a program that failed is started again.
        """
        self._directory = directory
        self._link = link
        self._view = view
        self._limits = limits or Limits()
        self._outcome = Outcome()
        self._wishes = 0
        self._wished = asyncio.Event()
        self._insisted = asyncio.Event()
        self._winding_down = False
        self._futile = FutileEnds(self._limits.futile_ends)
        self._given_up: asyncio.Future[tuple[int, str]] | None = None
        self._caretaker = Caretaker(self._limits, self._event)
        self._notices_shown = 0
        self._began_at = time.time()
        self._early: asyncio.Task[None] | None = None
        self._member_restarts: dict[tuple[str, int], dict[str, int]] = {}
        self._trace_memory = programs.trace_memory
        self._learner = self._program("learner-0", programs.learner, uid, self._limits.learner_grace, restart)
        self._workers = [
            self._program(f"worker-{i}", programs.worker, uid, self._limits.worker_grace, restart)
            for i in range(programs.workers)
        ]

    def interrupt(self) -> None:
        """First call: end the run in good order. Second call: at once."""
        self._wishes += 1
        self._wished.set()
        if self._wishes > 1:
            self._insisted.set()

    async def run(self) -> Outcome:
        """Start everything, wait for the end, leave no process behind."""
        started = time.monotonic()
        self._given_up = asyncio.get_running_loop().create_future()
        before = frozenset(c.pid for c in psutil.Process().children())
        adopt_orphans()
        watcher = asyncio.create_task(self._watch(before), name="watch the run")
        try:
            for process in (*self._workers, self._learner):
                await process.start()
            await self._until_over(watcher)
            await self._wind_down()
            await self._look_once_more()
            self._say_how_to_go_on()
        except WebGymError as e:
            self._end(e.exit_code, "cannot start", str(e))
        finally:
            watcher.cancel()
            if self._early is not None:
                await self._early
            for process in (*self._workers, self._learner):
                process.kill()
            await drain_all((*self._workers, self._learner), 0)
            strays = kill_descendants(spare=before | frozenset(self._link.pids))
            if strays:
                logger.warning("killed what programs left behind: %s", ", ".join(strays))
            adopt_orphans(False)
        outcome = self._outcome
        outcome.seconds = time.monotonic() - started
        outcome.restarts = self._restarts()
        return outcome

    # ---- while it runs ----

    async def _until_over(self, watcher: asyncio.Task[tuple[str, str]]) -> None:
        """Return when the run has to end, the reason noted in the outcome."""

        def task(awaitable: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
            return asyncio.create_task(awaitable)

        wish = task(self._wished.wait())
        lost = task(self._link.lost())
        learner = task(self._learner.wait())
        workers = task(self._workers_gone())
        assert self._given_up is not None
        tasks = {wish, lost, learner, workers, watcher, self._given_up}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not done & {wish, lost}:
                # Programs notice a dead server as fast as we do: its death is the reason, not theirs.
                await asyncio.wait(
                    {lost}, timeout=0.0 if self._learner.state is ProcessState.FINISHED else 1.0
                )
            if wish.done():
                self._end(ExitCode.INTERRUPTED, "interrupted")
            elif lost.done() and self._learner.state is not ProcessState.FINISHED:
                self._end(ExitCode.BROKER_LOST, "broker lost", lost.result())
            elif self._given_up.done():
                code, message = self._given_up.result()
                self._end(code, "no progress", message)
            elif learner.done():
                await self._look_once_more()
                self._learner_ended(learner.result())
            elif workers.done():
                code, message = workers.result()
                self._end(code, "workers failed", message)
            else:
                reason, message = watcher.result()
                code = ExitCode.BROKER_LOST if reason == "broker lost" else ExitCode.FAILURE
                self._end(code, reason, message)
                if code == ExitCode.BROKER_LOST:
                    self._link.abandon()
        finally:
            for one in (wish, lost, learner, workers):
                one.cancel()
            await asyncio.gather(wish, lost, learner, workers, return_exceptions=True)

    def _learner_ended(self, ended: Exit) -> None:
        last = self._outcome.last
        if self._learner.state is ProcessState.FINISHED or last.phase == "done":
            if last.phase == "train":
                message = "the learner was asked to end before the run was done; go on by --resume"
                self._end(ExitCode.FAILURE, "learner left", message)
            self._end(ExitCode.OK, last.reason or "done")
            return
        code = ended.code if ended.code in set(ExitCode) else ExitCode.FAILURE
        reason = "diverged" if code == ExitCode.DIVERGED else "learner failed"
        self._end(code, reason, f"{self._learner.failure}; see {self._directory.log('learner-0')}")

    async def _workers_gone(self) -> tuple[int, str]:
        """Return once no worker is left that could come back."""
        ends = await asyncio.gather(*(w.wait() for w in self._workers))
        failed = [w for w in self._workers if w.state is ProcessState.FAILED]
        if not failed:
            # They leave when the run is done; the learner has yet to write its last files.
            await asyncio.sleep(self._limits.learner_grace)
            return ExitCode.FAILURE, "all workers left although the run was not done"
        codes = [e.code for e in ends if e.code in set(ExitCode) and e.code != ExitCode.OK]
        code = codes[0] if codes and codes[0] != ExitCode.UNAVAILABLE else ExitCode.FAILURE
        return code, f"{failed[0].failure}; see {self._directory.log(failed[0].name)}"

    def _progress(self, program: str) -> Hashable:
        """How far the run has come by what a program is for: another value means that its last life was of use."""
        last = self._outcome.last
        if program != self._learner.name:
            return last.completed
        return last.phase, self._saved()

    def _give_up(self, code: int, message: str, program: str) -> None:
        if self._given_up is not None and not self._given_up.done():
            self._given_up.set_result((code, f"{message}; see {self._directory.log(program)}"))

    async def _watch(self, before: Collection[int]) -> tuple[str, str]:
        """Look at the run again and again; returns (reason, message) when a limit is overrun."""
        began = time.monotonic()
        answered = began
        phase, entered = "", began
        sampled = 0.0
        while True:
            now = time.monotonic()
            try:
                async with asyncio.timeout(5.0):
                    snapshot = await self._link.snapshot()
                answered = now
                self._note(snapshot)
                busy = not self._winding_down and snapshot.phase != "done"
                self._caretaker.look(snapshot, now, act=busy)
            except (OSError, TimeoutError, WebGymError) as e:
                logger.debug("no news: %s", e)
                if now - answered > self._limits.unreachable and not self._winding_down:
                    return "broker lost", f"Redis has not answered for {now - answered:.0f} s"
            if now - sampled >= 2.0:
                sampled = now
                self._outcome.peak_memory_bytes = max(self._outcome.peak_memory_bytes, tree_memory())
                own = {p.pid for p in (*self._workers, self._learner) if p.pid is not None}
                reap_orphans(before, own | set(self._link.pids))
            shown = self._outcome.last
            if self._winding_down and shown.phase not in ("done", "failed"):
                shown = replace(shown, phase="drain")
            with contextlib.suppress(OSError):
                self._view.update(
                    shown,
                    restarts=sum(self._restarts().values()),
                    memory=self._outcome.peak_memory_bytes,
                )
            if self._outcome.last.phase != phase:
                phase, entered = self._outcome.last.phase, now
                if phase == "done" and self._early is None:
                    # The verdict is written. What the learner still does needs no browsers, and is not worth a
                    # second life if it dies of it.
                    self._learner.restart = RestartPolicy.never()
                    self._early = asyncio.create_task(drain_all(self._workers))
            overrun = self._limits.overrun(phase, now - entered, now - began, self._caretaker.still)
            if overrun and not self._winding_down:
                return overrun[0], overrun[1] + self._complaints()
            await asyncio.sleep(
                self._limits.poll
            )  # progress and memory are quantities: there is no event to await

    def _complaints(self) -> str:
        """What the programs last complained of, for the message that ends a run."""
        found = {}
        for name in (*(w.name for w in self._workers), self._learner.name):
            found[name] = last_complaint(self._directory.log(name), self._began_at)
        told = [f"{name}: {text}" for name, text in found.items() if text]
        return "; " + "; ".join(told[:2]) if told else ""

    def _note(self, snapshot: Snapshot) -> None:
        self._outcome.last = snapshot
        self._outcome.checkpoint = self._outcome.checkpoint or snapshot.checkpoint
        for notice in snapshot.notices[self._notices_shown :]:
            self._event(notice, self._view.warn)
        self._notices_shown = max(self._notices_shown, len(snapshot.notices))
        self._outcome.began |= snapshot.phase not in ("start", "failed")
        for member in snapshot.members:
            counts = member.restarts_by_kind or {"browser": member.restarts}
            known = self._member_restarts.setdefault((member.id, member.pid), {})
            for kind, count in counts.items():
                if count > known.get(kind, 0):
                    more = count - known.get(kind, 0)
                    self._event(f"{member.id} started anew: {kind}{f' ({more} times)' if more > 1 else ''}")
                    if processes := len(member.processes(kind)):
                        self._inner_ended(member.id, kind, more, processes)
                known[kind] = max(known.get(kind, 0), count)

    def _inner_ended(self, worker: str, kind: str, times: int, processes: int) -> None:
        """Processes of a worker ended, and the worker has started them again."""
        name = f"{worker} {kind}"
        if self._futile.ended(name, self._progress(worker), times, alike=processes):
            count = self._futile.count(name)
            message = f"the {kind} process of {worker} has ended {count} times without an episode completed in between"
            self._give_up(ExitCode.FAILURE, message + self._complaints(), worker)

    def _restarts(self) -> dict[str, int]:
        total: Counter[str] = Counter(
            learner=self._learner.restarts, worker=sum(w.restarts for w in self._workers)
        )
        for counts in self._member_restarts.values():
            total.update(counts)
        return dict(total)

    async def _look_once_more(self) -> None:
        """The programs' last words came after the last look."""
        if self._outcome.code != ExitCode.BROKER_LOST:
            with contextlib.suppress(OSError, TimeoutError, WebGymError):
                async with asyncio.timeout(2.0):
                    self._note(await self._link.snapshot())

    # ---- its end ----

    def _end(self, code: int, reason: str, message: str = "") -> None:
        if self._outcome.stop_reason:
            return
        self._outcome.code, self._outcome.stop_reason, self._outcome.message = code, reason, message
        self._winding_down = True

    async def _wind_down(self) -> None:
        """Drain all programs; a second wish kills them."""
        training = self._outcome.last.phase == "train"
        known = self._saved()
        if self._outcome.stop_reason == "interrupted":
            self._event("stopping: checkpoint first; Ctrl-C again stops at once")
        drain = asyncio.create_task(drain_all((self._learner, *self._workers)))
        insisted = asyncio.create_task(self._insisted.wait())
        await asyncio.wait({drain, insisted}, return_when=asyncio.FIRST_COMPLETED)
        if not drain.done():
            self._event("stopping at once")
            for process in (self._learner, *self._workers):
                process.kill()
        insisted.cancel()
        await drain
        last = self._learner.exits[-1] if self._learner.exits else None
        if training and last is not None and last.code == -signal.SIGKILL and self._saved() == known:
            lost = "all it learned" if known is None else f"what it learned since {known[0].name}"
            self._event(f"the learner was killed before it had written its last checkpoint: {lost} is lost")

    def _saved(self) -> tuple[Path, int] | None:
        """The newest checkpoint, and when it was written."""
        newest = newest_checkpoint(self._directory.checkpoints)
        with contextlib.suppress(OSError):
            return None if newest is None else (newest, newest.stat().st_mtime_ns)
        return None

    def _say_how_to_go_on(self) -> None:
        outcome = self._outcome
        if outcome.code != ExitCode.BROKER_LOST:
            return
        saved = any(self._directory.checkpoints.glob("step-*"))
        outcome.message += (
            "; the last checkpoint is kept: go on by --resume" if saved else "; nothing was saved yet"
        )

    # ---- its programs ----

    def _program(
        self, name: str, argv: Sequence[str], uid: str | None, grace: float, restart: RestartPolicy | None
    ) -> ManagedProcess:
        context = ProgramContext(
            spec_path=self._directory.manifest.resolve(),
            run_uid=uid or self._directory.uid,
            redis_url=self._link.url,
            out=self._directory.path.resolve(),
            id=name,
            termination_log=self._directory.last_word(name).resolve(),
            log_format="json",
            task_path=self._directory.task_path,
            trace_memory=self._trace_memory,
        )
        return ManagedProcess(
            name,
            argv,
            env=context.environ(),
            log=self._directory.log(name),
            restart=restart,
            grace_seconds=grace,
            last_word=context.termination_log,
            on_exit=self._exited,
        )

    def _exited(self, process: ManagedProcess, ended: Exit, delay: float | None) -> None:
        if delay is not None:
            self._event(f"{process.name} ended ({ended.reason}) and is started again")
            if self._futile.ended(process.name, self._progress(process.name)):
                what = "a new checkpoint" if process is self._learner else "an episode completed"
                count = self._futile.count(process.name)
                code = ended.code if ended.code in set(ExitCode) else ExitCode.FAILURE
                message = f"{process.name} has ended {count} times without {what} in between: {ended.reason}"
                self._give_up(code, message, process.name)
                process.kill()  # There is nothing to kill; it is not started again.
        elif process.state is ProcessState.FAILED and process is not self._learner and len(self._workers) > 1:
            self._event(f"{process.name} ended for good: {ended.reason}")

    def _event(self, text: str, show: Callable[[str], None] | None = None) -> None:
        logger.info("%s", text)
        self._outcome.events.append(text)
        with contextlib.suppress(OSError):
            (show or self._view.event)(text)
