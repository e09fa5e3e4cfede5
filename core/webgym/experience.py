"""Transitions on their way from workers to the learner, with backpressure.

A stream holds batches until the learner has put them into its replay and acknowledged them, which deletes
them. How many transitions wait is counted by the same scripts that add and delete. Above a high-water mark
writers wait until an acknowledgement tells them of room; so they wait as well when Redis's memory is full,
and lose nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import redis
import redis.asyncio
from redis.exceptions import OutOfMemoryError

from webgym.broker import BLOCK_SECONDS, broker_errors, client_where
from webgym.errors import ProtocolError
from webgym.keys import Keys
from webgym.protocol import TransitionBatch
from webgym.schema import Schema
from webgym.scripts import Argument, AsyncScriptCaller, ScriptCaller, load_script

__all__ = ["ExperienceReader", "ExperienceWriter", "SequenceFilter"]

logger = logging.getLogger(__name__)

_PUSH = load_script("experience_push")
_ACK = load_script("experience_ack", allow_oom=True)
_READ = load_script("experience_read")

_SEEN = 50_000
"""How many pushed batches Redis remembers, to recognise one that is pushed again."""


class ExperienceWriter:
    """The workers' end.

    Args:
        client: from :func:`webgym.broker.connect_async`.
        keys: of the run.
        schema: of the observations.
        high_water: transitions that may wait; from there on :meth:`await_capacity` waits.

    All methods raise :class:`~webgym.errors.BrokerError` when Redis cannot be reached or refuses.
    """

    def __init__(
        self, client: redis.asyncio.Redis, keys: Keys, schema: Schema, high_water: int = 20_000
    ) -> None:
        if high_water < 1:
            raise ValueError("the high-water mark is at least 1")
        self.high_water = high_water
        self.waited_seconds = 0.0
        """Time that some coroutine spent waiting for room, in all."""
        self._client: Any = client
        self._keys = keys
        self._schema = schema
        self._caller = AsyncScriptCaller(client)
        self._where = client_where(client)
        self._waiting = asyncio.Lock()

    async def push(self, batches: Iterable[TransitionBatch]) -> int:
        """Send batches; repeating a push adds nothing. Waits while Redis's memory is full.

        Returns:
            How many transitions wait for the learner now.

        Raises:
            ProtocolError: a batch does not fit the schema; nothing was sent.
        """
        args: list[Argument] = [_SEEN]
        for batch in batches:
            identity = f"{batch.episode}/{batch.attempt}/{batch.first_sequence}+{len(batch)}"
            args += (identity, len(batch), batch.encode(self._schema))
        keys = (self._keys.experience, self._keys.experience_backlog, self._keys.experience_seen)

        async def send() -> int | None:
            with broker_errors(self._where):
                try:
                    backlog, _ = await self._caller(_PUSH, keys, args)
                except OutOfMemoryError:
                    return None
            return int(backlog)

        backlog = await send()
        return backlog if backlog is not None else await self._retry_on_room(send)

    async def backlog(self) -> int:
        """How many transitions wait for the learner."""
        with broker_errors(self._where):
            return int(await self._client.get(self._keys.experience_backlog) or 0)

    async def await_capacity(self) -> int:
        """Wait until fewer transitions than the high-water mark wait for the learner.

        Returns:
            How many do.
        """

        async def look() -> int | None:
            backlog = await self.backlog()
            return backlog if backlog < self.high_water else None

        found = await look()
        return found if found is not None else await self._retry_on_room(look)

    async def _retry_on_room(self, attempt: Callable[[], Any]) -> int:
        """Try at each acknowledgement until there is a result; every few seconds even without one."""
        started = time.monotonic()
        try:
            # One coroutine at a time listens; the next finds out at once whether there is room for it too.
            async with self._waiting, self._acknowledgements() as acknowledged:
                # Subscribed before trying: an acknowledgement from here on also ends the wait below.
                while (result := await attempt()) is None:
                    await acknowledged()
                return int(result)
        finally:
            self.waited_seconds += time.monotonic() - started

    @contextlib.asynccontextmanager
    async def _acknowledgements(self) -> AsyncIterator[Callable[[], Any]]:
        # Subscribed only while waiting: Redis would buffer what nobody reads.
        pubsub: Any = self._client.pubsub(ignore_subscribe_messages=True)

        async def acknowledged() -> None:
            with broker_errors(self._where):
                await pubsub.get_message(timeout=BLOCK_SECONDS)

        try:
            with broker_errors(self._where):
                await pubsub.subscribe(self._keys.experience_channel)
            yield acknowledged
        finally:
            await pubsub.aclose()


class ExperienceReader:
    """The learner's end.

    A new reader begins with what no earlier one acknowledged. Batches that cannot be decoded, and
    transitions that arrived before, are acknowledged here and counted.

    Args:
        client: from :func:`webgym.broker.connect`.
        keys: of the run.
        schema: of the observations.
        rank: which part is read, where several learners divide the stream among them.
        ranks: how many parts there are. All of one episode is in one part.

    All methods raise :class:`~webgym.errors.BrokerError` when Redis cannot be reached or refuses.
    """

    def __init__(
        self, client: redis.Redis, keys: Keys, schema: Schema, *, rank: int = 0, ranks: int = 1
    ) -> None:
        if not 0 <= rank < ranks:
            raise ValueError(f"there is no part {rank} of {ranks}")
        self.rejected = 0
        """Batches that could not be decoded."""
        self.last_rejection = ""
        """Why, for the latest."""
        self.duplicates = 0
        """Transitions that had arrived before."""
        self._client: Any = client
        self._keys = keys
        self._schema = schema
        self._caller = ScriptCaller(client)
        self._where = client_where(client)
        self._filter = SequenceFilter()
        self._part = rank, ranks
        self._cursor = "0"
        self._sizes: dict[str, int] = {}

    def read(self, max_batches: int = 100, block_ms: int = 0) -> list[tuple[str, TransitionBatch]]:
        """The next batches.

        Args:
            max_batches: at most so many entries of the stream.
            block_ms: how long to wait for the first.

        Returns:
            Stream ids, for :meth:`ack`, with batches. An id comes twice if the middle of its batch was known.
        """
        with broker_errors(self._where):
            entries = self._entries(max_batches, min(block_ms, int(BLOCK_SECONDS * 1000)) or None)
        received: list[tuple[str, TransitionBatch]] = []
        useless: list[str] = []
        for id, fields in entries:
            self._sizes[id] = _size(fields.get(b"n", b""))
            fresh = self._fresh(fields.get(b"batch", b""))
            received += [(id, part) for part in fresh]
            if not fresh:
                useless.append(id)
        if useless:
            self.ack(useless)
        return received

    def ack(self, ids: Iterable[str]) -> int:
        """Delete batches that were dealt with; repeating it changes nothing.

        Returns:
            How many transitions still wait.
        """
        args: list[Argument] = [self._keys.experience_channel]
        done = list(dict.fromkeys(ids))
        for id in done:
            args += (id, self._sizes.get(id, 0))
        with broker_errors(self._where):
            backlog = self._caller(_ACK, (self._keys.experience, self._keys.experience_backlog), args)
        for id in done:
            self._sizes.pop(id, None)
        return int(backlog)

    def backlog(self) -> int:
        """How many transitions wait, those read and not yet acknowledged included."""
        with broker_errors(self._where):
            return int(self._client.get(self._keys.experience_backlog) or 0)

    def _entries(self, count: int, block: int | None) -> list[tuple[str, dict[bytes, bytes]]]:
        """The next entries of our part; the cursor moves beyond all that were looked at."""
        if self._part == (0, 1):
            reply = self._client.xread({self._keys.experience: self._cursor}, count=count, block=block)
            entries = [(id.decode(), fields) for id, fields in reply[0][1]] if reply else []
            if entries:
                self._cursor = entries[-1][0]
            return entries
        if block is not None:
            # One entry, whoever's it is, tells that there is something to sort out.
            self._client.xread({self._keys.experience: self._cursor}, count=1, block=block)
        cursor, *mine = self._caller(_READ, (self._keys.experience,), (self._cursor, count, *self._part))
        self._cursor = cursor.decode()
        return [(id.decode(), dict(zip(flat[::2], flat[1::2], strict=True))) for id, flat in mine]

    def _fresh(self, data: bytes) -> list[TransitionBatch]:
        try:
            batch = TransitionBatch.decode(data, self._schema)
        except ProtocolError as e:
            self.rejected += 1
            self.last_rejection = str(e)
            logger.warning("a batch of transitions was dropped: %s", e)
            return []
        first = batch.first_sequence
        gaps = self._filter.add(batch.episode, batch.attempt, first, first + len(batch))
        self.duplicates += len(batch) - sum(stop - start for start, stop in gaps)
        return [batch.part(start - first, stop - first) for start, stop in gaps]


class SequenceFilter:
    """Which transitions, named by (episode, attempt, sequence), have not been seen before.

    Args:
        capacity: (episode, attempt) pairs remembered; the ones longest without news are forgotten first.
    """

    def __init__(self, capacity: int = 50_000) -> None:
        self._capacity = capacity
        self._seen: OrderedDict[tuple[str, int], list[tuple[int, int]]] = OrderedDict()

    def add(self, episode: str, attempt: int, start: int, stop: int) -> list[tuple[int, int]]:
        """Mark sequences ``[start, stop)`` as seen.

        Returns:
            The ranges of them that were new, in order.
        """
        key = (episode, attempt)
        known = self._seen.pop(key, [])
        gaps, at = [], start
        merged: list[tuple[int, int]] = []
        low, high = start, stop
        for a, b in known:  # Sorted, disjoint, not touching.
            if b < start or a > stop:
                merged.append((a, b))
                continue
            low, high = min(low, a), max(high, b)
            if a > at:
                gaps.append((at, a))
            at = max(at, b)
        if at < stop:
            gaps.append((at, stop))
        merged.append((low, high))
        merged.sort()
        self._seen[key] = merged
        if len(self._seen) > self._capacity:
            self._seen.popitem(last=False)
        return gaps


def _size(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) < 10 else 0
