"""The learner's end of Redis: experience and results in, episodes and parameters out."""

from __future__ import annotations

import json
import logging
import time
from typing import cast

import numpy as np
from numpy.typing import NDArray
from redis import Redis

from webgym.broker import broker_errors, client_where
from webgym.errors import BrokerError
from webgym.experience import ExperienceReader
from webgym.keys import Keys
from webgym.params import StaleGeneration, SyncParameterStore
from webgym.protocol import EpisodeSummary, EpisodeTask, TransitionBatch
from webgym.queue import DeadLetter, Purpose, Result, SyncTaskQueue
from webgym.run.snapshot import parse_snapshot
from webgym.schema import Schema
from webgym_learner.recorder import EpisodeLedger

__all__ = ["Inbox", "StateLost"]

logger = logging.getLogger(__name__)

_MOST_BATCHES = 256
_MOST_RESULTS = 1000
_BROWSERS_SECONDS = 2.0
_CHECK_SECONDS = 2.0


class StateLost(BrokerError):
    """The server answers, and has lost the run's keys. The learner that comes next brings them back."""


class Inbox:
    """What the learner exchanges with the workers.

    Args:
        client: the run's Redis, bytes undecoded.
        keys: the run's keys.
        schema: of the experience.
        ledger: results are written there before they are taken off the stream.
        generation: of this learner; an older one cannot publish any more.

    All methods raise :class:`~webgym.errors.BrokerError` when Redis cannot be reached or refuses.
    """

    def __init__(
        self, client: Redis, keys: Keys, schema: Schema, ledger: EpisodeLedger, generation: int
    ) -> None:
        self._client = client
        self._keys = keys
        self._schema = schema
        self._ledger = ledger
        self._generation = generation
        self._queue = SyncTaskQueue(client, keys)
        self._params = SyncParameterStore(client, keys)
        self._browsers = 0
        self._browsers_until = 0.0
        self._check_at = 0.0
        self._where = client_where(client)
        self._reader = ExperienceReader(client, keys, schema)

    def check(self) -> None:
        """Make sure, about every two seconds, that the server still knows this learner as the run's.

        Raises:
            StateLost: it has forgotten the run.
            StaleGeneration: another learner has taken over.
        """
        now = time.monotonic()
        if now < self._check_at:
            return
        self._check_at = now + _CHECK_SECONDS
        with broker_errors(self._where):
            found = int(cast(bytes | None, self._client.hget(self._keys.control, "generation")) or 0)
        if found < self._generation:
            raise StateLost(
                f"Redis at {self._where} has forgotten this run: it was flushed, or started again without its data;"
                " what was queued is lost, and training goes on from the last checkpoint"
            )
        if found > self._generation:
            raise StaleGeneration(f"learner generation {self._generation} was replaced by {found}")

    def divide(self, rank: int, ranks: int) -> None:
        """From now on :meth:`experience` has the part of one of so many learners: all of it for ``divide(0, 1)``."""
        self._reader = ExperienceReader(self._client, self._keys, self._schema, rank=rank, ranks=ranks)

    def experience(self, block_ms: int) -> list[TransitionBatch]:
        """Batches that arrived, each once; waits for the first at most so long.

        Batches are taken off the stream at once: what a killed learner had in its replay is lost with it anyway.
        """
        entries = self._reader.read(_MOST_BATCHES, block_ms)
        if not entries:
            return []
        self._reader.ack([entry_id for entry_id, _ in entries])
        return [batch for _, batch in entries]

    def results(self) -> list[EpisodeSummary]:
        """Episodes that finished since the last call, each once, already in the ledger."""
        found = self._queue.results(count=_MOST_RESULTS)
        if not found:
            return []
        summaries = [s for s in map(_summary_of, found) if s is not None]
        fresh = self._ledger.add(summaries)
        self._queue.ack_results([r.id for r in found])
        return fresh

    def add(self, tasks: list[EpisodeTask]) -> int:
        """Queue episodes; returns how many were new."""
        return self._queue.add(tasks) if tasks else 0

    def deal(self, tasks: list[EpisodeTask], cursors: dict[str, int]) -> None:
        """Queue episodes and remember how far dealing has come, for a learner that takes over from this one."""
        # The cursors first: an episode that is never played is no loss, one that is dealt twice would be.
        with broker_errors(self._where):
            self._client.hset(self._keys.control, "cursors", json.dumps(cursors))
        self.add(tasks)

    def browsers(self) -> int:
        """Browsers that the workers say they have, asked for about every two seconds."""
        now = time.monotonic()
        if now >= self._browsers_until:
            self._browsers_until = now + _BROWSERS_SECONDS
            with broker_errors(self._where):
                members = cast(dict[bytes, bytes], self._client.hgetall(self._keys.members))
            self._browsers = sum(m.browsers for m in parse_snapshot({}, {}, members).members)
        return self._browsers

    def queued(self) -> int:
        """Episodes that nobody has leased yet."""
        return self._queue.counts().queued

    def cancel(self, purpose: str) -> int:
        """Remove what is queued of a purpose; returns how many."""
        return self._queue.cancel(cast(Purpose, purpose))

    def publish(self, version: int, state: dict[str, NDArray[np.float32]], *, pinned: bool) -> None:
        """Make parameters visible to all workers."""
        self._params.publish(version, self._generation, state, self._schema.hash, pinned=pinned)

    def unpin(self, version: int) -> None:
        """Let a version be trimmed."""
        self._params.unpin(version)

    def film(self, episode: str) -> dict[bytes, bytes]:
        """The screenshots of a recorded episode and their description; empty when there are none."""
        with broker_errors(self._where):
            return cast(dict[bytes, bytes], self._client.hgetall(f"{self._keys.film}:{episode}"))


def _summary_of(result: Result) -> EpisodeSummary | None:
    if result.summary is not None:
        return result.summary
    if result.dead is not None:
        return _given_up(result.dead)
    logger.warning("result of %s cannot be read: %s", result.episode, result.error)
    return None


def _given_up(letter: DeadLetter) -> EpisodeSummary | None:
    """A dead letter as a failed episode, so that it is counted and waited for no longer."""
    task = letter.task
    if task is None:
        return None
    last = letter.reasons[-1] if letter.reasons else None
    return EpisodeSummary(
        episode=letter.episode,
        attempt=letter.attempt,
        task=task.task,
        seed=task.seed,
        purpose=task.purpose,
        success=False,
        reward=0.0,
        steps=0,
        seconds=0.0,
        version=task.version,
        epsilon=0.0,
        worker=last.worker if last else "",
        outcome="fault",
        fault=last.reason if last else "no reason was left",
    )
