"""Turns between the browsers of a worker and the learner, for the modes in which they do not overlap.

The browser processes of a worker report when all their browsers have stepped; once every browser of the worker has,
the learner learns and grants the next turn. A report lasts until it is answered and a grant until its turn is over, so
whoever is killed finds at its restart whether it is the other's turn. A turn granted for nothing does no harm: there
is nothing to learn from it.
"""

from __future__ import annotations

import time
from typing import Any

import redis
import redis.asyncio

from webgym.broker import BLOCK_SECONDS, broker_errors, client_where
from webgym.keys import Keys
from webgym.scripts import Argument, AsyncScriptCaller, ScriptCaller, load_script

__all__ = ["LearnerTurns", "WorkerTurns"]

_REPORT = load_script("turns_report")
_GRANT = load_script("turns_grant", allow_oom=True)

_OPEN = b"open"


class WorkerTurns:
    """One browser process's end.

    Args:
        client: from :func:`webgym.broker.connect_async`.
        keys: of the run.
        process: name of this process; its successor has the same.
        browsers: of this process.
        total: browsers of the whole worker.
    """

    def __init__(
        self, client: redis.asyncio.Redis, keys: Keys, process: str, browsers: int, total: int
    ) -> None:
        self._client: Any = client
        self._caller = AsyncScriptCaller(client)
        self._where = client_where(client)
        self._granted = keys.turns_granted(process)
        self._keys = (keys.turns_reports, keys.turns_bell, self._granted, keys.turns_open)
        self._report: list[Argument] = [process, f"{browsers} {total}"]

    async def next(self) -> int | None:
        """Report that the browsers of this process have stepped, and wait until they may again.

        Returns:
            The parameter version to act with, or a later one; None where nobody takes turns any more.

        Raises:
            BrokerError: Redis cannot be reached or refuses.
        """
        with broker_errors(self._where):
            # Said again now and then, for a server that lost it.
            while not await self._caller(_REPORT, self._keys, self._report):
                found = await self._client.blpop([self._granted], timeout=BLOCK_SECONDS)
                if found is not None:
                    return None if found[1] == _OPEN else int(found[1])
        return None


class LearnerTurns:
    """The learner's end.

    Args:
        client: from :func:`webgym.broker.connect`.
        keys: of the run.

    All methods raise :class:`~webgym.errors.BrokerError` when Redis cannot be reached or refuses.
    """

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client: Any = client
        self._caller = ScriptCaller(client)
        self._where = client_where(client)
        self._keys = keys

    def wait(self, seconds: float) -> int | None:
        """Wait until every browser of the worker has stepped.

        Returns:
            How many browsers it has; None when it took longer.
        """
        deadline = time.monotonic() + seconds
        with broker_errors(self._where):
            while True:
                # Looked at before waiting for the bell: an earlier learner may have heard it.
                reports = [tuple(map(int, text.split())) for text in self._reports().values()]
                total = max((total for _, total in reports), default=0)
                if reports and sum(browsers for browsers, _ in reports) >= total:
                    return total
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._client.blpop([self._keys.turns_bell], timeout=min(left, BLOCK_SECONDS))

    def grant(self, version: int) -> None:
        """Let those who have reported step once more, with parameters of this version or a later one."""
        self._answer(str(version))

    def open(self) -> None:
        """Let everybody step as they like from now on."""
        self._answer(_OPEN, self._keys.turns_open)

    def close(self) -> None:
        """Take turns, whatever an earlier learner left."""
        with broker_errors(self._where):
            self._client.delete(self._keys.turns_open)

    def _reports(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self._client.hgetall(self._keys.turns_reports)
        return found

    def _answer(self, token: str | bytes, *standing: str) -> None:
        with broker_errors(self._where):
            waiting = [self._keys.turns_granted(process.decode()) for process in self._reports()]
            keys = (self._keys.turns_reports, self._keys.turns_bell, *waiting, *standing)
            self._caller(_GRANT, keys, [token, len(waiting)])
