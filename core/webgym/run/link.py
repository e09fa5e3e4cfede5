"""The supervisor's side of Redis: a server of our own or one that is named, and what the run says through
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from webgym.broker import BrokerConfig, broker_errors, check, connect_async
from webgym.connection import broker_config
from webgym.embedded import EmbeddedBroker
from webgym.errors import BrokerError, ExitCode
from webgym.keys import Keys
from webgym.run.snapshot import Snapshot, parse_snapshot

if TYPE_CHECKING:
    from webgym.spec import Redis

__all__ = ["RedisLink", "open_link"]

logger = logging.getLogger(__name__)


class RedisLink:
    """A connection to the run's Redis, and the server itself if it is ours."""

    def __init__(self, config: BrokerConfig, keys: Keys, embedded: EmbeddedBroker | None) -> None:
        self._config = config
        self._keys = keys
        self._embedded = embedded
        self._client = connect_async(config)

    @property
    def url(self) -> str:
        """What programs connect to, without credentials: those they read by the manifest."""
        return self._config.url

    @property
    def pids(self) -> Collection[int]:
        """The server, if it is ours."""
        pid = None if self._embedded is None else self._embedded.pid
        return () if pid is None else (pid,)

    async def begin(self) -> None:
        """Clear what an earlier life of the run, killed on a server that is not ours, last said of itself.

        The learner's generation and cursors stay: they are what it counts on from.

        Raises:
            BrokerError: the server does not answer.
        """
        with broker_errors(self._config.where):
            async with self._client.pipeline(transaction=True) as pipe:
                said = {"phase": '"start"', "reason": '""', "checkpoint": '""'}
                pipe.hset(self._keys.control, mapping=said)  # type: ignore[arg-type]
                pipe.delete(self._keys.members, self._keys.notices)
                await pipe.execute()

    async def snapshot(self) -> Snapshot:
        """The run now.

        Raises:
            BrokerError: the server does not answer.
        """
        keys = self._keys
        with broker_errors(self._config.where):
            async with self._client.pipeline(transaction=False) as pipe:
                for key in (keys.control, keys.progress, keys.members, keys.counters):
                    pipe.hgetall(key)
                pipe.lrange(keys.notices, 0, -1)
                control, progress, members, counters, notices = await pipe.execute()
        return parse_snapshot(control, progress, members, counters, notices)

    async def lost(self) -> str:
        """Return once a server of ours has ended; for others the silence tells, and this never returns."""
        if self._embedded is not None:
            await self._embedded.ended()
            try:
                self._embedded.check()
            except BrokerError as e:
                return str(e)
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    def abandon(self) -> None:
        """End a server of ours that does not answer. Whoever waits for it, above all a learner that has a checkpoint
        to write, waits no longer.
        """
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def forget(self) -> None:
        """Remove what the run left in a server that is not ours; checkpoint and manifest can rebuild it."""
        if self._embedded is not None:
            return
        try:
            with broker_errors(self._config.where):
                found = [key async for key in self._client.scan_iter(match=self._keys.everything, count=500)]
                for start in range(0, len(found), 500):
                    await self._client.unlink(*found[start : start + 500])
        except BrokerError as e:
            logger.warning("the run's keys stay in Redis: %s", e)

    async def close(self) -> None:
        """Disconnect, and end a server of ours."""
        await self._client.aclose()
        if self._embedded is not None:
            self._embedded.stop()


def open_link(redis: Redis, uid: str) -> RedisLink:
    """Start our own server, or make sure that the named one can be used. Writes nothing outside its own
    folder.

    The thread that calls this must live as long as the server is to.

    Args:
        redis: the manifest's section.
        uid: the run's identity.

    Raises:
        BrokerError: no server can be started or reached, or it refuses us. Its exit code is FAILURE, not BROKER_LOST:
            nothing was lost that was there before.
        UsageError: the password's source or a certificate is missing.
    """
    try:
        return _open_link(redis, Keys(uid))
    except BrokerError as error:
        error.exit_code = ExitCode.FAILURE
        raise


def _open_link(redis: Redis, keys: Keys) -> RedisLink:
    if redis.url is not None:
        config = broker_config(redis)
        began = time.monotonic()
        for warning in check(config).warnings:
            logger.warning("%s", warning)
        logger.info("Redis at %s answers after %.2f s", config.where, time.monotonic() - began)
        return RedisLink(config, keys, None)
    embedded = EmbeddedBroker(max_memory=int(redis.max_memory)).start()
    return RedisLink(broker_config(redis, embedded.url), keys, embedded)
