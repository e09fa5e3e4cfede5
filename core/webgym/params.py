"""The parameters of the policy, by version: published by the learner, fetched by workers.

A version is staged in chunks under a name nobody reads and made visible by one script, which refuses a
learner of an older generation, drops old versions and announces the new one. Nothing is pickled.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
import redis
import redis.asyncio
from numpy.typing import NDArray

from webgym.broker import BLOCK_SECONDS, broker_errors, client_where
from webgym.errors import ProtocolError, RunError
from webgym.keys import Keys
from webgym.protocol import PackedParameters, Parameters, pack_parameters, unpack_parameters
from webgym.scripts import Argument, AsyncScriptCaller, ScriptCaller, load_script

__all__ = ["MissingParameters", "ParameterStore", "Parameters", "StaleGeneration", "SyncParameterStore"]

_COMMIT = load_script("params_trim", "params_commit", allow_oom=True)
_UNPIN = load_script("params_trim", "params_unpin", allow_oom=True)

_STAGING_SECONDS = 120
_FETCH_TRIES = 5


# Newest is the highest version of the highest generation: a learner that resumed from a checkpoint counts
# on from there, below what its predecessor still published. Scores are doubles, exact below 2**53.
_MAX_VERSION = 2**40
_MAX_GENERATION = 2**13


def _score(version: int, generation: int) -> int:
    return generation * _MAX_VERSION + version


class StaleGeneration(RunError):
    """A newer incarnation of the learner has published: this one must stop."""


class MissingParameters(RunError):
    """No version was published yet, or the wanted one is no longer kept."""


class _Layout:
    """Keys, commands and replies that both stores share."""

    def __init__(self, keys: Keys, keep: int) -> None:
        if keep < 1:
            raise ValueError("at least one version is kept")
        self.keys = keys
        self.keep = keep
        self._prefix = keys.params_version("")

    @staticmethod
    def fields(packed: PackedParameters) -> dict[str, bytes | memoryview]:
        return {"header": packed.header, **{f"chunk:{i}": chunk for i, chunk in enumerate(packed.chunks)}}

    def staging(self) -> str:
        return self.keys.params_version(f"staging:{uuid.uuid4().hex}")

    def commit(
        self, staging: str, version: int, generation: int, pinned: bool
    ) -> tuple[list[str], list[Argument]]:
        k = self.keys
        names = [k.params_index, k.params_pinned, k.params_generation, staging, k.params_version(version)]
        return names, [
            self.keep,
            self._prefix,
            version,
            generation,
            int(pinned),
            k.params_channel,
            _score(version, generation),
            _MAX_VERSION,
        ]

    def unpin(self, version: int) -> tuple[list[str], list[Argument]]:
        return [self.keys.params_index, self.keys.params_pinned], [self.keep, self._prefix, version]

    @staticmethod
    def check_commit(reply: list[int], version: int, generation: int) -> None:
        accepted, current = reply
        if not accepted:
            raise StaleGeneration(
                f"parameters version {version} of learner generation {generation} are refused: "
                f"generation {current} has published since, so this learner was replaced"
            )

    @staticmethod
    def unpack(version: int, found: Mapping[bytes, bytes], schema_hash: str | None) -> Parameters:
        try:
            chunks = [found[f"chunk:{i}".encode()] for i in range(len(found) - 1)]
            header = found[b"header"]
        except KeyError as e:
            raise ProtocolError(f"parameters version {version}: {e.args[0].decode()} is missing") from None
        try:
            parameters = unpack_parameters(PackedParameters(header, chunks), schema_hash)
        except ProtocolError as e:
            text = str(e)
            if f"version {version}" in text:
                raise
            raise type(e)(f"parameters version {version}: {text}") from e
        if parameters.version != version:
            raise ProtocolError(f"parameters version {version}: the entry says version {parameters.version}")
        return parameters

    @staticmethod
    def check_versions(version: int, generation: int) -> None:
        # From 1, because 0 stands for the newest.
        if not 1 <= version < _MAX_VERSION or not 1 <= generation < _MAX_GENERATION:
            raise ValueError(f"version {version} or generation {generation} is out of range")

    @staticmethod
    def missing(version: int, kept: list[int]) -> MissingParameters:
        if not version:
            return MissingParameters("no parameters were published yet")
        have = ", ".join(str(v) for v in kept) or "none"
        return MissingParameters(f"parameters version {version} are not kept (there are {have})")


class SyncParameterStore:
    """Parameters by version, for programs without an event loop.

    Args:
        client: from :func:`webgym.broker.connect`.
        keys: of the run.
        keep: how many unpinned versions stay.

    All methods raise :class:`~webgym.errors.BrokerError` when Redis cannot be reached or refuses.
    """

    def __init__(self, client: redis.Redis, keys: Keys, keep: int = 4) -> None:
        self._client: Any = client
        self._layout = _Layout(keys, keep)
        self._caller = ScriptCaller(client)
        self._where = client_where(client)
        self._pubsub: Any = None

    def publish(
        self,
        version: int,
        generation: int,
        state: Mapping[str, NDArray[np.generic]],
        schema_hash: str,
        pinned: bool = False,
    ) -> None:
        """Make a version the newest; publishing the same one again replaces it.

        Args:
            version: from 1, rising within a generation.
            generation: of the learner, from 1, rising with each restart.
            state: tensors by name.
            schema_hash: :attr:`webgym.schema.Schema.hash`.
            pinned: keep it until :meth:`unpin`, or until a newer generation publishes.

        What is pinned is judged, and travels exactly; all else travels with half the bits
        (:func:`webgym.protocol.pack_parameters`).

        Raises:
            StaleGeneration: a newer generation has published; nothing changed.
            ProtocolError: a tensor cannot be sent or holds NaN or infinity.
        """
        layout = self._layout
        layout.check_versions(version, generation)
        packed = pack_parameters(version, generation, state, schema_hash, half=not pinned)
        staging = layout.staging()
        with broker_errors(self._where):
            for name, value in layout.fields(packed).items():
                self._client.hset(
                    staging, name, value
                )  # One at a time: other clients get their turn in between.
            self._client.expire(staging, _STAGING_SECONDS)
            reply = self._caller(_COMMIT, *layout.commit(staging, version, generation, pinned))
        layout.check_commit(reply, version, generation)

    def latest_version(self) -> int:
        """The newest version; 0 while there is none."""
        with broker_errors(self._where):
            found = self._client.zrevrange(self._layout.keys.params_index, 0, 0)
        return int(found[0]) if found else 0

    def versions(self) -> list[int]:
        """All versions that are kept, the newest last."""
        with broker_errors(self._where):
            return [int(v) for v in self._client.zrange(self._layout.keys.params_index, 0, -1)]

    def generation(self) -> int:
        """The highest generation that ever published; 0 while there is none."""
        with broker_errors(self._where):
            return int(self._client.get(self._layout.keys.params_generation) or 0)

    def fetch(self, version: int | None = None, schema_hash: str | None = None) -> Parameters:
        """One version.

        Args:
            version: None or 0 for the newest.
            schema_hash: what the caller has; None accepts any.

        Raises:
            MissingParameters: nothing was published, or that version is no longer kept.
            SchemaMismatch: it is for another schema.
            ProtocolError: the stored bytes are damaged.
        """
        for _ in range(_FETCH_TRIES):
            wanted = version or self.latest_version()
            if not wanted:
                break
            with broker_errors(self._where):
                found = self._client.hgetall(self._layout.keys.params_version(wanted))
            if found:
                return self._layout.unpack(wanted, found, schema_hash)
            if version:
                break
            # The newest was trimmed between the two reads: by now there are newer ones.
        raise self._layout.missing(version or 0, self.versions())

    def unpin(self, version: int) -> bool:
        """Let trimming have a pinned version again; whether it was pinned."""
        with broker_errors(self._where):
            return bool(self._caller(_UNPIN, *self._layout.unpin(version)))

    def wait_newer(self, version: int, timeout: float) -> int:
        """Wait until a version other than this one is the newest, or for ``timeout`` seconds.

        Returns:
            The newest version then. After a learner was resumed it may be lower; 0 when there is none, which is waited
            out as well: a store that has lost all its versions has nothing new to offer.
        """
        deadline = time.monotonic() + timeout
        with broker_errors(self._where):
            if self._pubsub is None:
                self._pubsub = self._client.pubsub(ignore_subscribe_messages=True)
                self._pubsub.subscribe(self._layout.keys.params_channel)
            while True:
                # Subscribed before looking: what is published from here on also wakes the wait below.
                latest = self.latest_version()
                left = deadline - time.monotonic()
                if latest not in (0, version) or left <= 0:
                    return latest
                self._pubsub.get_message(timeout=min(left, BLOCK_SECONDS))

    def close(self) -> None:
        """Give up the subscription; the client stays open."""
        if self._pubsub is not None:
            self._pubsub.close()
            self._pubsub = None


class ParameterStore:
    """Parameters by version, for asyncio programs; otherwise as :class:`SyncParameterStore`."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, keep: int = 4) -> None:
        self._client: Any = client
        self._layout = _Layout(keys, keep)
        self._caller = AsyncScriptCaller(client)
        self._where = client_where(client)
        self._pubsub: Any = None

    async def publish(
        self,
        version: int,
        generation: int,
        state: Mapping[str, NDArray[np.generic]],
        schema_hash: str,
        pinned: bool = False,
    ) -> None:
        """See :meth:`SyncParameterStore.publish`; packing happens in a thread."""
        layout = self._layout
        layout.check_versions(version, generation)
        packed = await asyncio.to_thread(
            pack_parameters, version, generation, state, schema_hash, half=not pinned
        )
        staging = layout.staging()
        with broker_errors(self._where):
            for name, value in layout.fields(packed).items():
                await self._client.hset(staging, name, value)
            await self._client.expire(staging, _STAGING_SECONDS)
            reply = await self._caller(_COMMIT, *layout.commit(staging, version, generation, pinned))
        layout.check_commit(reply, version, generation)

    async def latest_version(self) -> int:
        """See :meth:`SyncParameterStore.latest_version`."""
        with broker_errors(self._where):
            found = await self._client.zrevrange(self._layout.keys.params_index, 0, 0)
        return int(found[0]) if found else 0

    async def versions(self) -> list[int]:
        """See :meth:`SyncParameterStore.versions`."""
        with broker_errors(self._where):
            return [int(v) for v in await self._client.zrange(self._layout.keys.params_index, 0, -1)]

    async def generation(self) -> int:
        """See :meth:`SyncParameterStore.generation`."""
        with broker_errors(self._where):
            return int(await self._client.get(self._layout.keys.params_generation) or 0)

    async def fetch(self, version: int | None = None, schema_hash: str | None = None) -> Parameters:
        """See :meth:`SyncParameterStore.fetch`; checking the bytes happens in a thread."""
        for _ in range(_FETCH_TRIES):
            wanted = version or await self.latest_version()
            if not wanted:
                break
            with broker_errors(self._where):
                found = await self._client.hgetall(self._layout.keys.params_version(wanted))
            if found:
                return await asyncio.to_thread(self._layout.unpack, wanted, found, schema_hash)
            if version:
                break
        raise self._layout.missing(version or 0, await self.versions())

    async def unpin(self, version: int) -> bool:
        """See :meth:`SyncParameterStore.unpin`."""
        with broker_errors(self._where):
            return bool(await self._caller(_UNPIN, *self._layout.unpin(version)))

    async def wait_newer(self, version: int, timeout: float) -> int:
        """See :meth:`SyncParameterStore.wait_newer`. One waiter at a time."""
        deadline = time.monotonic() + timeout
        with broker_errors(self._where):
            if self._pubsub is None:
                self._pubsub = self._client.pubsub(ignore_subscribe_messages=True)
                await self._pubsub.subscribe(self._layout.keys.params_channel)
            while True:
                latest = await self.latest_version()
                left = deadline - time.monotonic()
                if latest not in (0, version) or left <= 0:
                    return latest
                await self._pubsub.get_message(timeout=min(left, BLOCK_SECONDS))

    async def aclose(self) -> None:
        """Give up the subscription; the client stays open."""
        if self._pubsub is not None:
            await self._pubsub.aclose()
            self._pubsub = None
