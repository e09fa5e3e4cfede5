"""The queue for programs without an event loop; otherwise as :mod:`webgym.queue.asynchronous`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import redis

from webgym.broker import BLOCK_SECONDS, broker_errors, client_where
from webgym.keys import Keys
from webgym.protocol import EpisodeSummary, EpisodeTask, Purpose
from webgym.queue.calls import (
    ENTRY_STATES,
    Call,
    Completion,
    Counts,
    DeadLetter,
    Entry,
    EntryState,
    Failure,
    FailureState,
    QueueCalls,
    Result,
)
from webgym.scripts import ScriptCaller

__all__ = ["SyncTaskQueue"]

_LOOK_SECONDS = 1.0
"""How often to look while waiting for tasks: nobody announces that a lease expired."""


class SyncTaskQueue:
    """Episodes by priority, first come first served among equals; each is counted once.

    One lease in :data:`~webgym.queue.STARVATION_SHARE` goes to whatever has waited longest.

    Every operation is safe to repeat after a connection broke in the middle of it: an episode is added once,
    completes once, and a lease nobody knows of expires.

    Args:
        client: from :func:`webgym.broker.connect`.
        keys: of the run.
        max_attempts: an episode that failed this often is dead.
        done_kept: how many completed ids are remembered, so that adding one again adds nothing.

    All methods raise :class:`~webgym.errors.BrokerError` when Redis cannot be reached or refuses.
    """

    def __init__(
        self, client: redis.Redis, keys: Keys, max_attempts: int = 5, done_kept: int = 100_000
    ) -> None:
        self.keys = keys
        self._client: Any = client
        self._calls = QueueCalls(keys, max_attempts, done_kept)
        self._caller = ScriptCaller(client)
        self._where = client_where(client)

    def _run(self, call: Call) -> Any:
        with broker_errors(self._where):
            return self._caller(*call)

    def add(self, tasks: Iterable[EpisodeTask]) -> int:
        """Queue tasks; ids that are known already (queued, leased, dead, lately done) are skipped.

        Returns:
            How many were new.
        """
        return sum(int(self._run(call)) for call in self._calls.add(tasks))

    def lease(
        self, worker: str, count: int, lease_seconds: float, wait_seconds: float = 0.0
    ) -> list[EpisodeTask]:
        """Take the next tasks for a while; leases that expired go back to the queue first.

        A caller that gives up in the middle of it may leave leases that nobody knows of; they expire.

        Args:
            worker: who takes them.
            count: at most so many.
            lease_seconds: how long without a :meth:`heartbeat`, by Redis's clock.
            wait_seconds: how long to wait for the first task.

        Returns:
            Highest priority first, then those that had waited longest; none if there is none. A payload that is no
            task goes to the dead letters.
        """
        tasks = self._lease(worker, count, lease_seconds)
        if tasks or wait_seconds <= 0:
            return tasks
        deadline = time.monotonic() + wait_seconds
        with (
            broker_errors(self._where),
            contextlib.closing(self._client.pubsub(ignore_subscribe_messages=True)) as pubsub,
        ):
            pubsub.subscribe(self.keys.queue_channel)
            # Subscribed before looking: what is queued from here on also ends the wait below.
            while not (tasks := self._lease(worker, count, lease_seconds)):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                pubsub.get_message(timeout=min(left, _LOOK_SECONDS))
        return tasks

    def _lease(self, worker: str, count: int, lease_seconds: float) -> list[EpisodeTask]:
        reply = self._run(self._calls.lease(worker, count, lease_seconds))
        tasks, poisoned = self._calls.leased(reply)
        if poisoned:
            failures = [Failure(p.episode, p.attempt, p.error, "payload") for p in poisoned]
            for call in self._calls.fail(failures, final=True):
                self._run(call)
        return tasks

    def heartbeat(self, worker: str, episodes: Iterable[str], lease_seconds: float) -> list[str]:
        """Prolong leases.

        Returns:
            The episodes that the worker still holds. The others are another's now: stop acting them.
        """
        held: list[str] = []
        for call in self._calls.heartbeat(worker, episodes, lease_seconds):
            held += [e.decode() for e in self._run(call)]
        return held

    def complete(
        self,
        episode: str,
        attempt: int,
        summary: bytes | EpisodeSummary,
        counters: Mapping[str, float] | None = None,
    ) -> bool:
        """Finish an episode: drop its lease, put the summary on the results stream, raise the counters.

        Returns:
            True exactly once for an episode. False (late or repeated): nothing changed.
        """
        return (self.complete_many([Completion(episode, attempt, summary, counters or {})]))[0]

    def complete_many(self, completions: Iterable[Completion]) -> list[bool]:
        """As :meth:`complete`, for many at once; one bool for each."""
        accepted: list[bool] = []
        for call in self._calls.complete(completions):
            accepted += [bool(a) for a in self._run(call)]
        return accepted

    def fail(
        self, episode: str, attempt: int, reason: str, fault_class: str = "fault", *, final: bool = False
    ) -> FailureState:
        """Give up an attempt: the episode goes back to its place, or to the dead letters after its attempts.

        Args:
            episode: its id.
            attempt: which the caller was given.
            reason: one line.
            fault_class: what kind of thing went wrong.
            final: it can never work: no further attempts.
        """
        failure = Failure(episode, attempt, reason, fault_class)
        (call,) = self._calls.fail([failure], final=final)
        return cast(FailureState, (self._run(call))[0].decode())

    def release(self, tasks: Iterable[EpisodeTask]) -> int:
        """Give leased tasks back unharmed, as a draining worker does; how many were its own."""
        return sum(int(self._run(call)) for call in self._calls.release(tasks))

    def abandon(self, worker: str, reason: str = "the worker was restarted") -> int:
        """Fail everything a worker holds, as its next incarnation does when it starts; how many."""
        return int(self._run(self._calls.abandon(worker, reason)))

    def cancel(self, purpose: Purpose) -> int:
        """Remove the queued episodes of a purpose; leased ones go on. How many were removed."""
        return int(self._run(self._calls.cancel(purpose)))

    def counts(self, purpose: Purpose | None = None) -> Counts:
        """How many episodes are in each state, of one purpose or of all."""
        with broker_errors(self._where):
            tally = self._client.hgetall(self.keys.queue[9])
        return self._calls.counts(tally, purpose)

    def counters(self) -> dict[str, float]:
        """The run's counters, which only completed episodes raise."""
        with broker_errors(self._where):
            found = self._client.hgetall(self.keys.counters)
        return {name.decode(): float(value) for name, value in found.items()}

    def dead_letters(self) -> list[DeadLetter]:
        """Episodes that failed too often, oldest first."""
        _, _, tasks, _, attempts, _, reasons, _, dead, *_ = self.keys.queue
        with broker_errors(self._where):
            episodes = self._client.zrange(dead, 0, -1)
            if not episodes:
                return []
            columns = [self._client.hmget(key, episodes) for key in (tasks, reasons, attempts)]
        return self._calls.dead_letters(episodes, columns)

    def requeue_dead(self, episodes: Sequence[str] | None = None) -> int:
        """Put dead letters back with their failures forgotten, the given ones or all; how many."""
        return sum(int(self._run(call)) for call in self._calls.requeue_dead(episodes))

    def move(self, episodes: Sequence[str], priority: float) -> dict[str, EntryState | None]:
        """Give episodes another priority; one that is leased or dead takes it when it is queued again.

        Returns:
            Where each of them is; None for one that is in none of these states, and stays as it is.
        """
        states = [s.decode() for call in self._calls.move(episodes, priority) for s in self._run(call)]
        found = [cast(EntryState, s) if s in ENTRY_STATES else None for s in states]
        return dict(zip(episodes, found, strict=True))

    def entries(self, state: EntryState, limit: int = 100) -> list[Entry]:
        """Episodes in one state, for people to look at: the next to be leased first, or the first whose lease runs
        out, or the longest dead.
        """
        return self._calls.entries(state, self._run(self._calls.listing(state, limit)))

    def results(self, after: str = "0", count: int = 1000, block_seconds: float = 0.0) -> list[Result]:
        """Entries of the results stream, oldest first.

        Args:
            after: id of the last one read; "0" for all that are not acknowledged.
            count: at most so many.
            block_seconds: how long to wait for the first one.
        """
        block = int(min(block_seconds, BLOCK_SECONDS) * 1000) or None
        with broker_errors(self._where):
            reply = self._client.xread({self.keys.results: after}, count=count, block=block)
        return self._calls.results(reply[0][1]) if reply else []

    def ack_results(self, ids: Sequence[str]) -> int:
        """Delete entries that were dealt with; how many there were."""
        if not ids:
            return 0
        with broker_errors(self._where):
            return int(self._client.xdel(self.keys.results, *ids))
