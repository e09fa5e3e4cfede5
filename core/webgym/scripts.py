"""Lua scripts: how they are put together, and how they are called on servers old and new."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import redis
import redis.asyncio
from redis.exceptions import NoScriptError, ResponseError

__all__ = ["AsyncScriptCaller", "LuaScript", "ScriptCaller", "load_script"]

Argument = str | bytes | memoryview | int | float


@dataclass(frozen=True)
class LuaScript:
    """A script's source and hash, in the form for Redis 7 and Valkey and in the one for Redis 6.2."""

    name: str
    body: str = field(repr=False)
    allow_oom: bool
    """It frees memory, so it must run also when memory is full. Redis 6.2 knows no such flag: there a full
    server stays full until somebody gives it more memory."""

    def source(self, *, flags: bool) -> str:
        """The script, headed by its flags where the server understands them."""
        if not flags:
            return self.body
        return f"#!lua{' flags=allow-oom' if self.allow_oom else ''}\n{self.body}"

    @cache  # noqa: B019 - scripts live as long as the program
    def sha(self, *, flags: bool) -> str:
        """What EVALSHA calls it."""
        return hashlib.sha1(self.source(flags=flags).encode(), usedforsecurity=False).hexdigest()


def load_script(*names: str, allow_oom: bool = False) -> LuaScript:
    """A script made of files in ``webgym/lua``, in that order.

    Args:
        names: without ``.lua``; shared heads first.
        allow_oom: whether it must run when the server's memory is full.
    """
    folder = files("webgym") / "lua"
    body = "\n".join((folder / f"{name}.lua").read_text(encoding="utf-8") for name in names)
    return LuaScript(names[-1], body, allow_oom)


def _lacks_flags(error: ResponseError) -> bool:
    return "unexpected symbol near '#'" in str(error)


class ScriptCaller:
    """Calls scripts through a synchronous client."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client
        self._flags = True

    def __call__(self, script: LuaScript, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run it by its hash, sending the source only when the server does not know it (first use,
        restart)."""
        try:
            return self._client.evalsha(script.sha(flags=self._flags), len(keys), *keys, *args)
        except NoScriptError:
            pass
        try:
            return self._client.eval(script.source(flags=self._flags), len(keys), *keys, *args)
        except ResponseError as e:
            if not (self._flags and _lacks_flags(e)):
                raise
        self._flags = False
        return self._client.eval(script.source(flags=False), len(keys), *keys, *args)


class AsyncScriptCaller:
    """Calls scripts through an asyncio client; otherwise as :class:`ScriptCaller`."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client: Any = client
        self._flags = True

    async def __call__(self, script: LuaScript, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run it by its hash, sending the source only when the server does not know it (first use,
        restart)."""
        try:
            return await self._client.evalsha(script.sha(flags=self._flags), len(keys), *keys, *args)
        except NoScriptError:
            pass
        try:
            return await self._client.eval(script.source(flags=self._flags), len(keys), *keys, *args)
        except ResponseError as e:
            if not (self._flags and _lacks_flags(e)):
                raise
        self._flags = False
        return await self._client.eval(script.source(flags=False), len(keys), *keys, *args)
