"""The queue of episodes: sorted sets in Redis, leases, retries, dead letters, each episode counted once.

An episode is queued, leased, done or dead, and each change between these is one Lua script. Whoever leases
names for how long; a lease that is neither prolonged nor completed goes back to the queue, with the next
attempt's number, and what the former holder still reports is refused. So an episode is executed at least
once and counted once.

:class:`TaskQueue` is for asyncio, :class:`SyncTaskQueue` for everything else; they share scripts and codecs.
"""

from __future__ import annotations

from webgym.protocol import EpisodeSummary, EpisodeTask, Purpose
from webgym.queue.asynchronous import TaskQueue
from webgym.queue.calls import (
    ENTRY_STATES,
    STARVATION_SHARE,
    Completion,
    Counts,
    DeadLetter,
    Entry,
    EntryState,
    Failure,
    FailureState,
    Reason,
    Result,
)
from webgym.queue.synchronous import SyncTaskQueue

__all__ = [
    "ENTRY_STATES",
    "STARVATION_SHARE",
    "Completion",
    "Counts",
    "DeadLetter",
    "Entry",
    "EntryState",
    "EpisodeSummary",
    "EpisodeTask",
    "Failure",
    "FailureState",
    "Purpose",
    "Reason",
    "Result",
    "SyncTaskQueue",
    "TaskQueue",
]
