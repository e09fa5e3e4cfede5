"""From news and time to reconciliations, and from their plans to writes.

Every run has at most one reconciliation at a time. Whatever happens to a run only marks it as due; what is to be done
follows from the state alone (:mod:`webgym_operator.reconcile`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from webgym.spec import KIND
from webgym_operator.api import Api, ApiError
from webgym_operator.cache import Cache, RunKey
from webgym_operator.events import Recorder
from webgym_operator.observed import Figures, Observed, sort_children
from webgym_operator.plan import Plan
from webgym_operator.reconcile import World, reconcile
from webgym_operator.redis_objects import Passwords
from webgym_operator.run import Run
from webgym_operator.schema_check import Definition
from webgym_operator.settings import Settings
from webgym_operator.statusing import with_problem, worth_writing
from webgym_operator.writer import Writer

__all__ = ["Controller", "Reader"]

logger = logging.getLogger(__name__)

_AT_ONCE = 8
"""Reconciliations of different runs at a time."""
_TRIES = 5
"""Of a reconciliation that fails by a fault of ours, before it is left alone until something changes."""
_FIGURES_SECONDS, _MOST_FIGURES_SECONDS = 5.0, 20.0
"""Between two looks at the figures of an active run; longer by and by where they never change."""


class Reader(Protocol):
    """Where figures come from."""

    async def read(self, run: Run) -> tuple[Figures | None, str]:
        """The figures, or None and why there are none."""

    async def forget(self, key: RunKey) -> None:
        """The run is gone."""


@dataclass
class _Memory:
    """What is known of a run beside its objects; all of it can be lost."""

    body: Mapping[str, Any]
    parsed: Run
    figures: Figures | None = None
    figures_error: str = ""
    figures_at: float = float("-inf")
    figures_every: float = _FIGURES_SECONDS
    children: object = None
    """Of the last reconciliation, by version."""
    passwords: Passwords | None = None
    certificate: tuple[str, bool] | None = None
    """Name of the Secret of ``redis.tls``, and whether it holds a certificate for us too."""
    last_write: float = float("-inf")
    failures: int = 0
    """Reconciliations in a row that failed by a fault of ours."""
    refusals: int = 0
    settled: object = None
    """The state at which nothing was left to do, and until when that holds."""
    settled_until: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Controller:
    """Looks after all runs that it is told of.

    Args:
        api: the cluster.
        settings: of the installation.
        reader: of figures.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        api: Api,
        cache: Cache,
        settings: Settings,
        reader: Reader,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._cache = cache
        self._settings = settings
        self._reader = reader
        self._clock = clock
        self._runs: dict[RunKey, _Memory] = {}
        self._due: dict[RunKey, float] = {}
        self._heap: list[tuple[float, RunKey]] = []
        self._news = asyncio.Event()
        self._active: set[RunKey] = set()
        self._definition: Definition | None = None
        self._recorder = Recorder(api, clock)
        self._writer = Writer(api, cache)
        self.disruption_budgets = True
        self.latencies: deque[float] = deque(maxlen=1000)
        """Seconds that reconciliations began after they were due, of late."""

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return len(self._runs)

    # --- news ------------------------------------------------------------------------------------------------------

    def saw_run(self, body: Mapping[str, Any]) -> None:
        """A run as it is now."""
        metadata = body["metadata"]
        key = (metadata["namespace"], metadata["name"])
        memory = self._runs.get(key)
        if memory is None or memory.parsed.uid != metadata["uid"]:
            self._runs[key] = _Memory(body, Run.parse(body, self._definition))
        elif not self._take(memory, body):
            return
        self.mark(key)

    def run_gone(self, body: Mapping[str, Any]) -> None:
        """A run that is no more; what it owned goes without us."""
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        memory = self._runs.get(key)
        if memory is not None and memory.parsed.uid == body["metadata"]["uid"]:
            del self._runs[key]

    def all_runs(
        self, bodies: list[Mapping[str, Any]], namespace: str | None, known_before: set[RunKey]
    ) -> None:
        """A whole list of runs: forget those that it lacks although they were known when it was asked for."""
        listed = {(b["metadata"]["namespace"], b["metadata"]["name"]) for b in bodies}
        for key in known_before - listed:
            if namespace in (None, key[0]):
                self._runs.pop(key, None)
        for body in bodies:
            self.saw_run(body)

    def saw_definition(self, definition: Definition) -> None:
        """The cluster's definition of runs; what they mean to us may be another thing with it."""
        self._definition = definition
        for key, memory in self._runs.items():
            memory.parsed = Run.parse(memory.body, definition)
            self.mark(key)

    @property
    def keys(self) -> set[RunKey]:
        """The runs that are known."""
        return set(self._runs)

    def mark(self, key: RunKey, at: float | None = None) -> None:
        """A run is due, now or at a time."""
        when = self._clock() if at is None else at
        if when < self._due.get(key, float("inf")):
            self._due[key] = when
            heapq.heappush(self._heap, (when, key))
            self._news.set()

    def _take(self, memory: _Memory, body: Mapping[str, Any]) -> bool:
        """Take over a newer state of a run; whether it was newer."""
        before, now = memory.parsed.resource_version, str(body["metadata"].get("resourceVersion", ""))
        if before.isdecimal() and now.isdecimal() and int(now) <= int(before):
            return False
        if body["metadata"].get("generation") != memory.body["metadata"].get("generation"):
            memory.failures = memory.refusals = 0
        memory.body, memory.parsed = body, Run.parse(body, self._definition)
        return True

    # --- work ------------------------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Reconcile what is due, for ever."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._news.clear()
                now = self._clock()
                while self._heap and self._heap[0][0] <= now and len(self._active) < _AT_ONCE:
                    when, key = heapq.heappop(self._heap)
                    if self._due.get(key) != when:
                        continue  # it was marked for an earlier time since
                    if key in self._active:
                        continue  # looked at again when the present reconciliation ends
                    del self._due[key]
                    self._active.add(key)
                    self.latencies.append(now - when)
                    group.create_task(self._one(key))
                wait = self._heap[0][0] - now if self._heap and len(self._active) < _AT_ONCE else 60.0
                try:
                    async with asyncio.timeout(max(0.001, wait)):
                        await self._news.wait()
                except TimeoutError:
                    pass

    async def _one(self, key: RunKey) -> None:
        try:
            await self.reconcile(key)
        finally:
            self._active.discard(key)
            if key in self._due:
                heapq.heappush(self._heap, (self._due[key], key))
            self._news.set()

    async def reconcile(self, key: RunKey) -> None:
        """One reconciliation of one run; never raises."""
        memory = self._runs.get(key)
        if memory is None:
            await self._reader.forget(key)
            return
        if memory.failures >= _TRIES:
            return  # until the run changes
        try:
            async with memory.lock:
                await self._reconcile(key, memory)
            memory.failures = 0
        except ApiError as error:
            memory.refusals += 1
            delay = min(60.0, 0.5 * 2.0**memory.refusals)
            logger.warning("%s/%s: %s; again in %.1f s", *key, error, delay)
            self.mark(key, self._clock() + delay)
        except Exception as error:
            await self._fault(key, memory, error)

    async def _fault(self, key: RunKey, memory: _Memory, error: Exception) -> None:
        memory.failures += 1
        logger.exception("%s/%s: reconciliation %d failed", *key, memory.failures)
        if memory.failures < _TRIES:
            self.mark(key, self._clock() + 2.0**memory.failures)
            return
        message = (
            f"a fault of the operator itself: {type(error).__name__}: {error}; "
            f"it tried {memory.failures} times, and tries again when the run changes"
        )
        try:
            status = with_problem(memory.parsed, "Ready", "InternalError", message, self._clock())
            await self._write_status(key, memory, status)
        except ApiError as again:
            logger.warning("%s/%s: %s", *key, again)

    async def _reconcile(self, key: RunKey, memory: _Memory) -> None:
        await self._look_at_certificate(memory)
        children = self._cache.version(key)
        if children != memory.children:
            # A pod that ended may mean that the run is over, which its figures tell.
            memory.children, memory.figures_every = children, _FIGURES_SECONDS
        await self._refresh_figures(memory)
        now = self._clock()
        seen = (self._definition, children, memory.figures, memory.figures_error)
        state = (memory.parsed.resource_version, *seen)
        if memory.settled == state and now < memory.settled_until:
            self._wake(key, memory, memory.settled_until)
            return
        plan = self._decide(key, memory, now)
        problem = await self._writer.carry_out(memory.parsed, plan.actions)
        status = plan.status
        if problem is not None:
            memory.refusals += 1
            status = with_problem(memory.parsed, "Progressing", problem.reason, str(problem), now, status)
            self.mark(key, now + min(60.0, 2.0 ** min(6, memory.refusals)))
        else:
            memory.refusals = 0
        wake = plan.wake_at
        if status is not None:
            due = worth_writing(
                memory.parsed.status,
                status,
                last_write=memory.last_write,
                now=now,
                period=self._settings.status_seconds,
            )
            if due is not None and due <= now:
                await self._write_status(key, memory, status)
                await self._recorder.record(memory.parsed, plan)
                # What the status now says may allow the next step.
                self.mark(key)
                return
            if due is not None:
                wake = due if wake is None else min(due, wake)
        await self._recorder.record(memory.parsed, plan)
        until = float("inf") if wake is None else wake
        if not plan.actions and problem is None:
            memory.settled, memory.settled_until = state, until
        self._wake(key, memory, until)

    def _wake(self, key: RunKey, memory: _Memory, until: float) -> None:
        if _is_active(memory.parsed):
            until = min(until, self._clock() + memory.figures_every)
        if until != float("inf"):
            self.mark(key, until)

    def _decide(self, key: RunKey, memory: _Memory, now: float) -> Plan:
        pods, objects, remains = sort_children(memory.parsed.uid, self._cache.children(key))
        observed = Observed(pods, objects, remains, memory.figures, memory.figures_error)
        world = World(self._settings, now, self._passwords(memory, objects), self.disruption_budgets)
        return reconcile(memory.parsed, observed, world)

    @staticmethod
    def _passwords(memory: _Memory, objects: Mapping[tuple[str, str], Any]) -> Passwords:
        """Those of the Secret; those that it held when it was last there; at last, new ones."""
        secret = objects.get(("Secret", memory.parsed.redis_name))
        found = None if secret is None else Passwords.parse(secret)
        memory.passwords = found or memory.passwords or Passwords.generate()
        return memory.passwords

    async def _look_at_certificate(self, memory: _Memory) -> None:
        run = memory.parsed
        tls = run.spec.redis.tls if run.manifest is not None else None
        if tls is None or tls.secret_name is None:
            return
        if memory.certificate is None or memory.certificate[0] != tls.secret_name:
            try:
                secret = await self._api.get("Secret", run.namespace, tls.secret_name)
            except ApiError as error:
                if error.status not in (403, 404):
                    raise
                return  # its pods will say that it is missing
            memory.certificate = (tls.secret_name, "tls.crt" in (secret.get("data") or {}))
        memory.parsed = dataclasses.replace(run, client_certificate=memory.certificate[1])

    async def _refresh_figures(self, memory: _Memory) -> None:
        if not _is_active(memory.parsed):
            return
        now = self._clock()
        if now - memory.figures_at < 0.8 * memory.figures_every:
            return
        memory.figures_at = now
        before = (memory.figures, memory.figures_error)
        memory.figures, memory.figures_error = await self._reader.read(memory.parsed)
        same = before == (memory.figures, memory.figures_error)
        memory.figures_every = (
            min(_MOST_FIGURES_SECONDS, memory.figures_every * 2) if same else _FIGURES_SECONDS
        )

    # --- status -----------------------------------------------------------------------------------------------------

    async def _write_status(self, key: RunKey, memory: _Memory, status: Mapping[str, Any]) -> None:
        before = memory.parsed.status
        patch = {k: v for k, v in status.items() if before.get(k) != v}
        patch |= dict.fromkeys(before.keys() - status.keys())
        if not patch:
            return
        for name in ("failures",):
            if name in patch and isinstance(before.get(name), dict) and isinstance(patch[name], dict):
                patch[name] = {**dict.fromkeys(before[name]), **patch[name]}
        # With the version that it was decided on: another writer's status is not overwritten unseen.
        body = {"metadata": {"resourceVersion": memory.parsed.resource_version}, "status": patch}
        try:
            made = await self._api.patch(KIND, *key, body, status=True)
        except ApiError as error:
            if error.status == 404:
                return
            if error.status != 409:
                raise
            made = await self._api.get(KIND, *key)
        memory.last_write = self._clock()
        if made["metadata"]["uid"] == memory.parsed.uid:
            self._take(memory, made)


def _is_active(run: Run) -> bool:
    """Whether programs of a run may be there to tell anything."""
    if run.manifest is None or run.deleting or run.status.get("completionTime"):
        return False
    return not run.spec.suspend
