"""Connecting to Redis or Valkey, and saying in one line what is wrong when that fails.

A server is named by a URL: ``redis://host:6379/0``, ``rediss://`` for TLS, ``unix:///path``. Credentials
may stand in the URL or beside it; no message, log line or ``repr`` of ours ever shows them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import ssl
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import redis
import redis.asyncio
from redis import exceptions as errors
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialWithJitterBackoff
from redis.credentials import UsernamePasswordCredentialProvider
from redis.retry import Retry

from webgym.broker_faults import broker_error, broker_errors
from webgym.clients import AsyncClient, Client
from webgym.embedded import EmbeddedBroker
from webgym.errors import BrokerError, UsageError
from webgym.keys import PREFIX

__all__ = [
    "BLOCK_SECONDS",
    "MINIMUM_VERSION",
    "BrokerConfig",
    "EmbeddedBroker",
    "ServerInfo",
    "broker_error",
    "broker_errors",
    "check",
    "client_where",
    "connect",
    "connect_async",
    "redact_url",
]

MINIMUM_VERSION = (6, 2)
"""Oldest Redis that has all commands in use. Valkey reports 7.2 here."""

BLOCK_SECONDS = 5.0
"""Longest single blocking read: less than any reply timeout, so that waiting never looks like a dead
server."""

_BACKOFF_BASE, _BACKOFF_CAP = 0.05, 1.0

# Everything the scripts do, on one key that is gone afterwards.
_PROBE = """
for _, command in ipairs({{'SET', '1'}, {'DEL'}, {'HSET', 'f', '1'}, {'DEL'}, {'ZADD', '1', 'm'}, {'DEL'},
  {'XADD', '*', 'f', '1'}, {'DEL'}}) do
  redis.call(command[1], KEYS[1], unpack(command, 2))
end
redis.call('PUBLISH', KEYS[1], '')
return redis.call('TIME')
"""


def redact_url(url: str) -> str:
    """The URL without its password and without a query, which may hold one too.

    >>> redact_url("rediss://bob:secret@redis.example:6380/1")
    'rediss://bob:***@redis.example:6380/1'
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "(malformed URL)"
    # The last @: a password may hold one that nobody escaped.
    credentials, at, place = rest.partition("?")[0].rpartition("@")
    user, colon, _ = credentials.partition(":")
    return f"{scheme}://{user}{':***' if colon else ''}{at}{place}"


@dataclass(frozen=True, repr=False)
class BrokerConfig:
    """Where the server is and how to log in.

    Raises:
        UsageError: the URL is malformed, or a certificate file does not exist.
    """

    url: str
    username: str | None = None
    """ACL user; None for the one in the URL, or the default user."""
    password: str | None = None
    """None for the one in the URL, or none."""
    ca_file: str | None = None
    """PEM file of authorities; None trusts the system's."""
    cert_file: str | None = None
    """PEM file of the client's certificate."""
    key_file: str | None = None
    """PEM file of its private key."""
    server_name: str | None = None
    """Name expected in the server's certificate; None for the host of the URL."""
    connect_timeout: float = 5.0
    """Seconds that one attempt to connect may take."""
    reply_timeout: float = 20.0
    """Seconds that one reply may take; more than :data:`BLOCK_SECONDS`."""
    patience: float = 45.0
    """About how many seconds a command goes on trying while a server that went away refuses connections,
    before it raises; up to :attr:`connect_timeout` more for each second where packets vanish."""

    def __post_init__(self) -> None:
        _ = self._parts, self._database
        for name in ("ca_file", "cert_file", "key_file"):
            path = getattr(self, name)
            if path is not None and not Path(path).is_file():
                raise UsageError(f"Redis TLS: {name.replace('_', ' ')} {path} is not a readable file")

    def __repr__(self) -> str:
        return f"BrokerConfig({self.where!r})"

    @cached_property
    def where(self) -> str:
        """The URL as messages show it."""
        return redact_url(self.url)

    @property
    def user(self) -> str:
        """The ACL user that logs in."""
        return self.username or unquote(self._parts.username or "") or "default"

    @cached_property
    def _parts(self) -> SplitResult:
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError:
            raise UsageError(
                f"Redis URL {self.where} is malformed; its port is a number up to 65535"
            ) from None
        wanted = "write redis://host:6379/0, rediss://host:6379/0 or unix:///path/to/socket"
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise UsageError(f"Redis URL {self.where} is malformed; {wanted}")
        if parts.scheme == "unix" and (parts.hostname or not parts.path):
            raise UsageError(f"Redis URL {self.where} names no socket; {wanted}")
        if parts.scheme != "unix" and (not parts.hostname or port == 0):
            raise UsageError(f"Redis URL {self.where} names no host or port; {wanted}")
        return parts

    @cached_property
    def _database(self) -> int:
        query = parse_qs(self._parts.query, keep_blank_values=True)
        if unknown := sorted(query.keys() - {"db"}):
            raise UsageError(f"Redis URL {self.where}: unknown option {unknown[0]!r}; only db= is understood")
        text = query.get("db", [""])[0]
        if not text and self._parts.scheme != "unix":
            text = self._parts.path.strip("/")
        if not re.fullmatch(r"\d{0,5}", text):
            raise UsageError(f"Redis URL {self.where}: the database is a number, such as /0")
        return int(text or 0)

    def client_arguments(self) -> dict[str, Any]:
        """Keyword arguments of :class:`redis.Redis`, all but the retry policy."""
        parts = self._parts
        arguments: dict[str, Any] = {
            # Replies have the same shape on every server and with every release of the client.
            "protocol": 2,
            "db": self._database,
            "socket_timeout": self.reply_timeout,
            "socket_connect_timeout": self.connect_timeout,
            "health_check_interval": 15,
            "client_name": "webgym",
        }
        username = self.username or unquote(parts.username or "") or None
        password = self.password if self.password is not None else unquote(parts.password or "")
        if username or password:
            # A provider and not username= and password=: the client's repr prints those.
            arguments["credential_provider"] = UsernamePasswordCredentialProvider(username, password)
        if parts.scheme == "unix":
            return arguments | {"unix_socket_path": unquote(parts.path)}
        arguments |= {"host": parts.hostname, "port": parts.port or 6379, "socket_keepalive": True}
        if parts.scheme == "rediss":
            arguments |= {
                "ssl": True,
                "ssl_ca_certs": self.ca_file,
                "ssl_certfile": self.cert_file,
                "ssl_keyfile": self.key_file,
            }
        return arguments

    def retries(self) -> int:
        """How many attempts fit into :attr:`patience` with the backoff in use; 0 for none of it."""
        # It doubles from the base: about five short delays come before those of full length.
        return 5 + round(self.patience / _BACKOFF_CAP) if self.patience > 0 else 0


def connect(config: BrokerConfig) -> redis.Redis:
    """A synchronous client; it connects on first use, and again whenever the server was away."""
    client = Client(**config.client_arguments(), retry=Retry(_backoff(), config.retries()))
    if config.server_name:
        client.connection_pool.connection_class = _named(_NamedConnection, config.server_name)
    return client


def connect_async(config: BrokerConfig) -> redis.asyncio.Redis:
    """An asyncio client; it connects on first use, and again whenever the server was away."""
    client = AsyncClient(**config.client_arguments(), retry=AsyncRetry(_backoff(), config.retries()))
    pool = client.connection_pool
    if config.server_name:
        pool.connection_class = _named(_NamedAsyncConnection, config.server_name)
    pool.connection_class = type(pool.connection_class.__name__, (_Cancellable, pool.connection_class), {})
    return client


class _Cancellable:
    """A connection whose user can be cancelled at any moment.

    redis-py sends by ``asyncio.wait_for``, which before Python 3.12 forgets a cancellation that comes in the moment in
    which it is done: the task would go on, and wait for the reply, for ever perhaps.
    """

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        connection: Any = super()
        await connection.send_packed_command(command, check_health)
        if task and task.cancelling() > before:
            # The reply to what was sent must not be taken for that to the next command.
            await connection.disconnect(nowait=True)
            raise asyncio.CancelledError


class _NamedConnection(redis.SSLConnection):
    """Expects a name other than the host in the server's certificate, which redis-py has no argument for."""

    server_name = ""

    def _wrap_socket_with_ssl(self, sock: Any) -> Any:
        host, self.host = self.host, self.server_name
        try:
            return super()._wrap_socket_with_ssl(sock)  # type: ignore[no-untyped-call]
        finally:
            self.host = host


class _NamedAsyncConnection(redis.asyncio.SSLConnection):
    """The same for asyncio."""

    server_name = ""

    def _connection_arguments(self) -> Any:
        return {**super()._connection_arguments(), "server_hostname": self.server_name}


def _named(base: Any, name: str) -> Any:
    return type(base.__name__, (base,), {"server_name": name})


def _backoff() -> ExponentialWithJitterBackoff:
    return ExponentialWithJitterBackoff(base=_BACKOFF_BASE, cap=_BACKOFF_CAP)


def client_where(client: redis.Redis | redis.asyncio.Redis) -> str:
    """Where a client connects to, for messages."""
    arguments = client.connection_pool.connection_kwargs
    if path := arguments.get("path"):
        return f"unix://{path}"
    scheme = "rediss" if "ssl_ca_certs" in arguments else "redis"
    return f"{scheme}://{arguments.get('host', '?')}:{arguments.get('port', '?')}"


class ServerInfo(NamedTuple):
    """What a server says of itself."""

    name: str
    """redis or valkey."""
    version: str
    warnings: tuple[str, ...]
    """Settings under which a run may lose data, one line each."""


def check(config: BrokerConfig, patience: float | None = None) -> ServerInfo:
    """Connect once and make sure that a run can use this server.

    Args:
        config: where it is.
        patience: seconds to go on trying while it is unreachable; None for the configuration's
            :attr:`~BrokerConfig.connect_timeout`.

    Raises:
        BrokerError: unreachable, wrong credentials, missing permissions, TLS trouble, too old, or not Redis.
    """
    deadline = time.monotonic() + (config.connect_timeout if patience is None else patience)
    client = connect(replace(config, patience=0, reply_timeout=config.connect_timeout))
    with broker_errors(config.where), contextlib.closing(client):
        _ping_until(client, deadline)
        try:
            info = {str(k): str(v) for k, v in client.info().items()}
        except errors.NoPermissionError:
            info = {}  # A user without INFO can still run everything.
        found = _server_info(info, config.where)
        client.eval(_PROBE, 1, f"{PREFIX}{{probe}}:{client.client_id()}")
    return found


def _ping_until(client: redis.Redis, deadline: float) -> None:
    backoff = _backoff()
    for failures in itertools.count(1):
        try:
            client.ping()
            return
        except (errors.AuthenticationError, errors.AuthorizationError):
            raise
        except (errors.ConnectionError, errors.TimeoutError) as e:
            delay = backoff.compute(failures)
            # Trying again cannot help against a certificate that is not trusted.
            if time.monotonic() + delay > deadline or isinstance(e.__cause__ or e.__context__, ssl.SSLError):
                raise
            time.sleep(delay)


def _server_info(info: dict[str, str], where: str) -> ServerInfo:
    redis_version = info.get("redis_version", "")
    numbers = tuple(int(n) for n in re.findall(r"\d+", redis_version)[:2])
    if numbers and numbers < MINIMUM_VERSION:
        wanted = ".".join(str(n) for n in MINIMUM_VERSION)
        raise BrokerError(
            f"Redis at {where} is version {redis_version}; Redis {wanted} or Valkey 7.2 is needed"
        )
    if info.get("redis_mode") == "cluster":
        raise BrokerError(
            f"Redis at {where} is a node of a Redis Cluster; name a server that is not clustered"
        )
    warnings = []
    policy = info.get("maxmemory_policy", "noeviction")
    if info.get("maxmemory", "0") != "0" and policy != "noeviction":
        warnings.append(
            f"Redis at {where} evicts keys when its memory is full ({policy}), and a run loses episodes with "
            "them; set maxmemory-policy noeviction"
        )
    if numbers and numbers < (7, 0):
        warnings.append(
            f"Redis at {where} is older than 7.0: once its memory is full it cannot free any by itself"
        )
    return ServerInfo(
        info.get("server_name", "redis"),
        info.get("valkey_version", redis_version) or "unknown",
        tuple(warnings),
    )
