"""What runs say of themselves, read from their Redis."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import redis.asyncio

from webgym.broker import BrokerConfig, connect_async
from webgym.broker_faults import broker_errors
from webgym.errors import WebGymError
from webgym.keys import Keys
from webgym.run.snapshot import Member, parse_snapshot
from webgym_operator.api import Api, ApiError
from webgym_operator.cache import Cache, RunKey
from webgym_operator.observed import Figures
from webgym_operator.podspec import REDIS_PORT
from webgym_operator.redis_objects import Passwords
from webgym_operator.run import Object, Run

__all__ = ["FiguresReader", "busy_workers", "sandbox_obstacle"]

_SECONDS = 3.0
"""For one reading, connecting included."""


def busy_workers(holders: Iterable[bytes | str]) -> dict[str, int]:
    """By worker: how many episodes it plays; from the names that hold leases, such as ``worker-0.8``."""
    names = (h.decode(errors="replace") if isinstance(h, bytes) else h for h in holders)
    return dict(Counter(name.partition(".")[0] for name in names))


def sandbox_obstacle(members: Iterable[Member]) -> str | None:
    """Why browsers of a run do without Chromium's sandbox: empty where all are in it, None where nobody told."""
    told = {m.id: m.sandbox_obstacle for m in members if m.sandbox_obstacle is not None}
    return next((f"{id_}: {why}" for id_, why in sorted(told.items()) if why), "") if told else None


class FiguresReader:
    """Keeps one connection to the Redis of each run that is asked about."""

    def __init__(self, api: Api, cache: Cache) -> None:
        self._api = api
        self._cache = cache
        self._clients: dict[RunKey, tuple[tuple[object, ...], redis.asyncio.Redis, str]] = {}
        self._certificates: dict[RunKey, tempfile.TemporaryDirectory[str]] = {}

    async def read(self, run: Run) -> tuple[Figures | None, str]:
        """The run's figures; or None, and why there are none (empty while none can be expected)."""
        key = (run.namespace, run.name)
        try:
            async with asyncio.timeout(_SECONDS):
                found = await self._client(run)
                if found is None:
                    return None, ""
                client, where = found
                with broker_errors(where):
                    return await _read(client, Keys(run.uid)), ""
        except TimeoutError:
            await self.forget(key)
            return None, f"Redis has not answered within {_SECONDS:g} s"
        except (WebGymError, ApiError) as error:
            await self.forget(key)
            return None, str(error)

    async def forget(self, key: RunKey) -> None:
        """Close the connection of a run."""
        known = self._clients.pop(key, None)
        if known is not None:
            with contextlib.suppress(Exception):
                await known[1].aclose()
        folder = self._certificates.pop(key, None)
        if folder is not None:
            folder.cleanup()

    async def close(self) -> None:
        """Close all connections."""
        for key in list(self._clients):
            await self.forget(key)

    async def _client(self, run: Run) -> tuple[redis.asyncio.Redis, str] | None:
        key = (run.namespace, run.name)
        identity = self._identity(run)
        if identity is None:
            return None
        known = self._clients.get(key)
        if known is not None and known[0] == identity:
            return known[1], known[2]
        await self.forget(key)
        config = self._own(identity) if run.spec.redis.url is None else await self._external(run)
        client = connect_async(config)
        self._clients[key] = (identity, client, config.where)
        return client, config.where

    def _identity(self, run: Run) -> tuple[object, ...] | None:
        """What a connection depends on; None while there is nothing to connect to."""
        if run.spec.redis.url is not None:
            return (run.uid, run.spec.redis.model_dump_json())
        address, passwords = "", None
        for child in self._cache.children((run.namespace, run.name)):
            if child["metadata"]["name"] != run.redis_name:
                continue
            if child["kind"] == "Service":
                address = child["spec"].get("clusterIP") or ""
            elif child["kind"] == "Secret":
                passwords = Passwords.parse(child)
        return (address, passwords.operator) if address and passwords else None

    @staticmethod
    def _own(identity: tuple[object, ...]) -> BrokerConfig:
        address, password = map(str, identity)
        host = f"[{address}]" if ":" in address else address
        return BrokerConfig(
            f"redis://{host}:{REDIS_PORT}/0",
            username="operator",
            password=password,
            connect_timeout=_SECONDS,
            reply_timeout=_SECONDS,
            patience=0,
        )

    async def _external(self, run: Run) -> BrokerConfig:
        spec = run.spec.redis
        password = None
        if spec.password_from is not None:
            ref = spec.password_from.secret_key_ref
            if ref is None:
                return _unreadable("its password is known to its pods alone (redis.passwordFrom)")
            secret = await self._api.get("Secret", run.namespace, ref.name)
            password = _decoded(secret, ref.key)
        files: dict[str, str] = {}
        if spec.tls is not None and spec.tls.secret_name is not None:
            secret = await self._api.get("Secret", run.namespace, spec.tls.secret_name)
            # The client of Redis takes certificates from files only.
            made = tempfile.TemporaryDirectory(prefix="webgym-tls-")
            self._certificates[run.namespace, run.name] = made
            folder = Path(made.name)
            for name, key in (("ca_file", "ca.crt"), ("cert_file", "tls.crt"), ("key_file", "tls.key")):
                if key in (secret.get("data") or {}):
                    path = folder / key
                    path.write_text(_decoded(secret, key))
                    path.chmod(0o600)
                    files[name] = str(path)
        assert spec.url is not None
        return BrokerConfig(
            spec.url,
            username=spec.username,
            password=password,
            server_name=spec.tls.server_name if spec.tls else None,
            connect_timeout=_SECONDS,
            reply_timeout=_SECONDS,
            patience=0,
            **files,
        )


def _unreadable(why: str) -> BrokerConfig:
    raise WebGymError(f"no figures of a Redis that the operator cannot log in to: {why}")


def _decoded(secret: Object, key: str) -> str:
    try:
        return base64.b64decode((secret.get("data") or {})[key]).decode().rstrip("\r\n")
    except (KeyError, ValueError) as error:
        raise WebGymError(f"the Secret {secret['metadata']['name']} has no usable key {key}") from error


async def _read(client: redis.asyncio.Redis, keys: Keys) -> Figures:
    queued, leases, holders = keys.queue[0], keys.queue[1], keys.queue[5]
    async with client.pipeline(transaction=False) as pipe:
        for key in (keys.control, keys.progress, keys.members):
            pipe.hgetall(key)
        pipe.zcard(queued)
        pipe.zcard(leases)
        pipe.hvals(holders)
        replies: list[Any] = await pipe.execute()
    control, progress, members, waiting, leased, held = replies
    # Without heartbeats, which are never twice the same: equal figures mean that there is nothing new.
    snapshot = parse_snapshot(control, progress, {})
    obstacle = sandbox_obstacle(parse_snapshot({}, {}, members).members)
    return Figures(snapshot, int(waiting), int(leased), busy_workers(held), obstacle)
