"""What each operation of the queue sends to Redis and what the reply means: pure, shared by both clients."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from webgym.errors import ProtocolError
from webgym.keys import Keys
from webgym.protocol import PURPOSES, EpisodeSummary, EpisodeTask, Purpose
from webgym.scripts import Argument, LuaScript, load_script

__all__ = [
    "ENTRY_STATES",
    "STARVATION_SHARE",
    "Call",
    "Completion",
    "Counts",
    "DeadLetter",
    "Entry",
    "EntryState",
    "Failure",
    "FailureState",
    "Poisoned",
    "QueueCalls",
    "Reason",
    "Result",
]

T = TypeVar("T")

FailureState = Literal["queued", "dead", "ignored"]
"""What became of a failed episode: back in the queue, dead, or not the caller's to fail any more."""

_BATCH = 500
"""Items in one script call: Redis serves nobody else meanwhile, some milliseconds."""

_RECLAIM = 1000
_MAX_REASON = 2000

STARVATION_SHARE = 20
"""Of so many leases, one goes to the episode that has waited longest, whatever its priority."""


class Call(NamedTuple):
    """One script call."""

    script: LuaScript
    keys: Sequence[str]
    args: list[Argument]


@dataclass(frozen=True)
class Completion:
    """One finished episode."""

    episode: str
    attempt: int
    summary: bytes | EpisodeSummary
    counters: Mapping[str, float] = field(default_factory=dict)
    """Added to the run's counters, only if this is what completes the episode."""


@dataclass(frozen=True)
class Failure:
    """One attempt that came to nothing."""

    episode: str
    attempt: int
    reason: str
    """One line for people."""
    fault_class: str = "fault"
    """For counting: browser, page, worker, payload, ..."""


class Reason(NamedTuple):
    """Why one attempt failed."""

    attempt: int
    worker: str
    reason: str
    fault_class: str
    time: float
    """Unix time by Redis's clock, seconds."""


@dataclass(frozen=True)
class DeadLetter:
    """An episode that failed too often."""

    episode: str
    attempt: int
    """The last one."""
    task: EpisodeTask | None
    """None where the task itself cannot be read."""
    reasons: tuple[Reason, ...]
    """Oldest first."""


EntryState = Literal["queued", "leased", "dead"]
ENTRY_STATES: tuple[EntryState, ...] = get_args(EntryState)
"""Where an episode is that somebody still has to act, or nobody can."""


@dataclass(frozen=True)
class Entry:
    """One episode as it stands in the queue, for people."""

    episode: str
    state: EntryState
    priority: float
    attempt: int
    """How often it was leased."""
    worker: str
    """Who holds it; empty unless it is leased."""
    held_seconds: float
    """Since when it is leased, or dead."""
    left_seconds: float
    """Until the lease runs out, if no sign of life comes."""
    task: EpisodeTask | None
    """None where the task itself cannot be read."""
    reasons: tuple[Reason, ...]
    """Why its attempts failed so far, oldest first."""


@dataclass(frozen=True)
class Result:
    """One entry of the results stream: an episode that completed, or one that died."""

    id: str
    """Of the stream entry; what is acknowledged."""
    episode: str
    attempt: int
    summary: EpisodeSummary | None
    """None for a dead letter, and where the summary cannot be read."""
    dead: DeadLetter | None = None
    error: str = ""
    """Why the summary cannot be read."""


@dataclass(frozen=True)
class Counts:
    """How many episodes are in each state."""

    queued: int = 0
    leased: int = 0
    done: int = 0
    dead: int = 0

    @property
    def open(self) -> int:
        """Episodes that somebody still has to act."""
        return self.queued + self.leased


class Poisoned(NamedTuple):
    """A leased payload that is no task."""

    episode: str
    attempt: int
    error: str


class QueueCalls:
    """Builds script calls and reads replies for one run.

    Args:
        keys: of the run.
        max_attempts: an episode that failed this often is dead.
        done_kept: how many completed ids are remembered, so that adding one again adds nothing.
    """

    def __init__(self, keys: Keys, max_attempts: int = 5, done_kept: int = 100_000) -> None:
        if max_attempts < 1 or done_kept < 1:
            raise ValueError("max_attempts and done_kept are at least 1")
        self.keys = keys
        self.max_attempts = max_attempts
        self.done_kept = done_kept

    def _call(self, script: LuaScript, args: list[Argument]) -> Call:
        return Call(script, self.keys.queue, args)

    def add(self, tasks: Iterable[EpisodeTask]) -> Iterator[Call]:
        """Replies: how many were new."""
        for batch in _batches(tasks):
            args: list[Argument] = []
            for task in batch:
                payload = task.encode()
                args += (task.episode, task.purpose, _score(task.priority), payload)
            yield self._call(_ADD, args)

    def lease(self, worker: str, count: int, lease_seconds: float) -> Call:
        """Reply for :meth:`leased`."""
        if count < 0 or not lease_seconds > 0:
            raise ValueError(f"cannot lease {count} tasks for {lease_seconds} s")
        milliseconds = math.ceil(lease_seconds * 1000)
        return self._call(
            _LEASE, [worker, count, milliseconds, self.max_attempts, _RECLAIM, STARVATION_SHARE]
        )

    @staticmethod
    def leased(reply: Sequence[Any]) -> tuple[list[EpisodeTask], list[Poisoned]]:
        """Tasks, and the payloads that are none."""
        tasks, poisoned = [], []
        for episode_bytes, attempt, payload in zip(*[iter(reply)] * 3, strict=True):
            episode = _text(episode_bytes)
            try:
                task = EpisodeTask.decode(payload, int(attempt))
                if task.episode != episode:
                    raise ProtocolError(f"payload of {episode} is a task of {task.episode}")
                tasks.append(task)
            except ProtocolError as e:
                poisoned.append(Poisoned(episode, int(attempt), str(e)))
        return tasks, poisoned

    def heartbeat(self, worker: str, episodes: Iterable[str], lease_seconds: float) -> Iterator[Call]:
        """Replies: the episodes still held."""
        for batch in _batches(episodes):
            yield self._call(_HEARTBEAT, [worker, math.ceil(lease_seconds * 1000), *batch])

    def complete(self, completions: Iterable[Completion]) -> Iterator[Call]:
        """Replies: 1 or 0 for each."""
        for batch in _batches(completions):
            args: list[Argument] = [self.done_kept]
            for one in batch:
                summary = one.summary.encode() if isinstance(one.summary, EpisodeSummary) else one.summary
                args += (one.episode, one.attempt, summary, len(one.counters))
                for name, by in one.counters.items():
                    if not math.isfinite(by):
                        raise ProtocolError(f"episode {one.episode}: counter {name} would change by {by}")
                    args += (name, repr(float(by)))
            yield self._call(_COMPLETE, args)

    def fail(self, failures: Iterable[Failure], *, final: bool = False) -> Iterator[Call]:
        """Replies: a :data:`FailureState` for each, as bytes."""
        for batch in _batches(failures):
            args: list[Argument] = [1 if final else self.max_attempts]
            for one in batch:
                args += (one.episode, one.attempt, one.reason[:_MAX_REASON], one.fault_class[:100])
            yield self._call(_FAIL, args)

    def release(self, tasks: Iterable[EpisodeTask]) -> Iterator[Call]:
        """Replies: how many were given back."""
        for batch in _batches(tasks):
            yield self._call(_RELEASE, [a for task in batch for a in (task.episode, task.attempt)])

    def abandon(self, worker: str, reason: str) -> Call:
        """Reply: how many it held."""
        return self._call(_ABANDON, [worker, reason[:_MAX_REASON], self.max_attempts])

    def cancel(self, purpose: Purpose) -> Call:
        """Reply: how many were queued."""
        if purpose not in PURPOSES:
            raise ValueError(f"purpose {purpose!r} is none of {', '.join(PURPOSES)}")
        return self._call(_CANCEL, [purpose])

    def requeue_dead(self, episodes: Sequence[str] | None) -> list[Call]:
        """Replies: how many were dead."""
        if episodes is None:
            return [self._call(_REQUEUE, [])]
        return [self._call(_REQUEUE, list(batch)) for batch in _batches(episodes)]

    def move(self, episodes: Iterable[str], priority: float) -> Iterator[Call]:
        """Replies: an :data:`EntryState` or ``unknown`` for each, as bytes."""
        if not math.isfinite(priority):
            raise ProtocolError(f"priority {priority} is not finite")
        for batch in _batches(episodes):
            yield self._call(_MOVE, [_score(priority), *batch])

    def listing(self, state: EntryState, limit: int) -> Call:
        """Reply for :meth:`entries`."""
        if state not in ENTRY_STATES or limit < 0:
            raise ValueError(f"cannot list {limit} episodes that are {state}")
        return self._call(_LIST, [state, limit])

    @staticmethod
    def entries(state: EntryState, reply: Sequence[bytes]) -> list[Entry]:
        """From the reply to :meth:`listing`."""
        now, rows = float(reply[0]), [reply[i : i + 7] for i in range(1, len(reply), 7)]
        return [_entry(state, now, row) for row in rows]

    def counts(self, tally: Mapping[bytes, bytes], purpose: Purpose | None) -> Counts:
        """From the tally hash: of one purpose, or of all."""
        sums = {"queued": 0, "leased": 0, "done": 0, "dead": 0}
        for name, value in tally.items():
            owner, _, state = _text(name).partition(".")
            if state in sums and purpose in (None, owner):
                sums[state] += int(value)
        return Counts(**sums)

    def dead_letters(self, episodes: Sequence[bytes], columns: Sequence[Sequence[Any]]) -> list[DeadLetter]:
        """From the dead ids and their tasks, reasons and attempts; those requeued in between are left out."""
        letters = []
        for episode, payload, reasons, attempt in zip(episodes, *columns, strict=True):
            if payload is not None and reasons is not None:
                letters.append(_dead_letter(_text(episode), int(attempt or 0), payload, reasons))
        return letters

    @staticmethod
    def results(entries: Sequence[tuple[bytes, Mapping[bytes, bytes]]]) -> list[Result]:
        """From entries of the results stream."""
        return [_result(_text(id), fields) for id, fields in entries]


def _result(id: str, fields: Mapping[bytes, bytes]) -> Result:
    episode, attempt = _text(fields.get(b"episode", b"")), _number(fields.get(b"attempt", b"0"))
    if fields.get(b"kind") == b"dead":
        dead = _dead_letter(episode, attempt, fields.get(b"task", b""), fields.get(b"reasons", b"[]"))
        return Result(id, episode, attempt, None, dead)
    try:
        summary = EpisodeSummary.decode(fields.get(b"summary", b""))
        if (summary.episode, summary.attempt) != (episode, attempt):
            raise ProtocolError(f"summary of {episode} is one of {summary.episode}")
    except ProtocolError as e:
        return Result(id, episode, attempt, None, error=str(e))
    return Result(id, episode, attempt, summary)


def _dead_letter(episode: str, attempt: int, payload: bytes, reasons: bytes) -> DeadLetter:
    return DeadLetter(episode, attempt, _task(payload, attempt), _reasons(reasons))


def _entry(state: EntryState, now: float, row: Sequence[bytes]) -> Entry:
    """From one row of ``lua/queue_list.lua``; ``now`` is its server's clock, milliseconds."""
    episode, order, attempts, holder, time, payload, reasons = row
    since, _, worker = _text(holder).partition(" ")
    attempt = _number(attempts)
    held = {"queued": 0.0, "leased": now - float(since or now), "dead": now - float(time)}[state]
    return Entry(
        episode=_text(episode),
        state=state,
        priority=-float(_text(order).partition(" ")[0] or 0) + 0.0,
        attempt=attempt,
        worker=worker,
        held_seconds=held / 1000,
        left_seconds=(float(time) - now) / 1000 if state == "leased" else 0.0,
        task=_task(payload, attempt),
        reasons=_reasons(reasons),
    )


def _task(payload: bytes, attempt: int) -> EpisodeTask | None:
    try:
        return EpisodeTask.decode(payload, attempt)
    except ProtocolError:
        return None


def _reasons(text: bytes) -> tuple[Reason, ...]:
    """None where they cannot be read: an episode that nobody can play must not be what ends the learner."""
    try:
        return tuple(
            Reason(int(r["attempt"]), str(r["worker"]), str(r["reason"]), str(r["fault"]), float(r["time"]))
            for r in json.loads(_text(text))
        )
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return ()


def _score(priority: float) -> str:
    # repr is exact. Redis sorts upwards, and the highest priority comes first.
    return repr(-float(priority))


def _number(value: bytes) -> int:
    return int(value) if value.isdigit() and len(value) < 19 else 0


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, _BATCH)):
        yield batch


def _script(name: str) -> LuaScript:
    # All of them run when memory is full: on balance they free it, or move episodes on so that others can. Adding takes
    # some, but whoever deals episodes keeps a bounded number of them queued, and is the one who makes room.
    return load_script("queue", f"queue_{name}", allow_oom=True)


_ADD = _script("add")
_LEASE = _script("lease")
_HEARTBEAT = _script("heartbeat")
_COMPLETE = _script("complete")
_FAIL = _script("fail")
_RELEASE = _script("release")
_ABANDON = _script("abandon")
_CANCEL = _script("cancel")
_REQUEUE = _script("requeue")
_MOVE = _script("move")
_LIST = _script("list")
