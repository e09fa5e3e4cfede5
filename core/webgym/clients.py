"""Clients for which a full server is no reason to stop.

Only experience can grow without bound, and it alone is held back when the memory is full
(:class:`webgym.experience.ExperienceWriter`). What a run keeps in hashes (its phase and progress, signs of life,
parameters of a few versions) is bounded. Were it refused, the learner would stop, which is what makes room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import redis
import redis.asyncio

from webgym.scripts import Argument, AsyncScriptCaller, ScriptCaller, load_script

__all__ = ["AsyncClient", "Client"]

_HASH_SET = load_script("hash_set", allow_oom=True)


class Client(redis.Redis):
    """Synchronous, with an HSET that a full server runs."""

    @cached_property
    def _caller(self) -> ScriptCaller:
        return ScriptCaller(self)

    def hset(  # type: ignore[override]
        self,
        name: str,
        key: str | bytes | None = None,
        value: Argument | None = None,
        mapping: Mapping[str, Argument] | None = None,
        items: Sequence[Argument] | None = None,
    ) -> int:
        """As :meth:`redis.Redis.hset`."""
        return int(self._caller(_HASH_SET, [name], _arguments(key, value, mapping, items)))


class AsyncClient(redis.asyncio.Redis):
    """The same for asyncio."""

    @cached_property
    def _caller(self) -> AsyncScriptCaller:
        return AsyncScriptCaller(self)

    async def hset(  # type: ignore[override]
        self,
        name: str,
        key: str | bytes | None = None,
        value: Argument | None = None,
        mapping: Mapping[str, Argument] | None = None,
        items: Sequence[Argument] | None = None,
    ) -> int:
        """As :meth:`redis.asyncio.Redis.hset`."""
        return int(await self._caller(_HASH_SET, [name], _arguments(key, value, mapping, items)))


def _arguments(
    key: str | bytes | None,
    value: Argument | None,
    mapping: Mapping[str, Argument] | None,
    items: Sequence[Argument] | None,
) -> list[Any]:
    arguments: list[Any] = list(items or ())
    if key is not None:
        arguments += (key, value)
    for field, held in (mapping or {}).items():
        arguments += (field, held)
    if not arguments:
        raise redis.DataError("HSET needs a field and a value")
    return arguments
