"""One line for whatever goes wrong between a client and Redis; never with credentials in it."""

from __future__ import annotations

import contextlib
import re
import ssl
from collections.abc import Iterator

from redis import exceptions as errors

from webgym.errors import BrokerError
from webgym.keys import PREFIX

__all__ = ["broker_error", "broker_errors"]


def broker_error(error: Exception, where: str) -> BrokerError:
    """One line for whatever the client library raised.

    Args:
        error: of redis-py, or an OSError.
        where: the server, without credentials.
    """
    text = str(error)
    cause = error.__cause__ or error.__context__
    if isinstance(error, ssl.SSLError) or isinstance(cause, ssl.SSLError) or "SSL" in text:
        return BrokerError(f"Redis at {where}: TLS failed: {_tls_reason(text or str(cause))}")
    if isinstance(
        error, (errors.AuthenticationError, errors.AuthenticationWrongNumberOfArgsError)
    ) or re.match(r"(NOAUTH|WRONGPASS)|.*(without any password configured|invalid.*password)", text):
        return BrokerError(
            f"Redis at {where} refuses the user name or password, or wants one: check redis.username and "
            "redis.passwordFrom"
        )
    if isinstance(error, errors.NoPermissionError) or "NOPERM" in text or "ACL failure" in text:
        return BrokerError(
            f"Redis at {where}: the user may not do what a run needs ({_plain(text)}); "
            f"grant ~{PREFIX}* &{PREFIX}* +@all -@admin -@dangerous +info"
        )
    if isinstance(error, errors.OutOfMemoryError) or text.startswith("OOM"):
        return BrokerError(f"Redis at {where}: its memory is full; raise maxmemory or remove old runs")
    if isinstance(error, errors.ReadOnlyError):
        return BrokerError(f"Redis at {where} is a read-only replica; name the primary server")
    if "MOVED" in text or "CLUSTERDOWN" in text or "CROSSSLOT" in text:
        return BrokerError(
            f"Redis at {where} is a node of a Redis Cluster; name a server that is not clustered"
        )
    if isinstance(error, errors.InvalidResponse) or "Protocol Error" in text:
        return BrokerError(f"{where} answers, but is not Redis; check redis.url")
    if isinstance(error, errors.BusyLoadingError):
        return BrokerError(f"Redis at {where} is still loading its data; try again when it is done")
    if isinstance(error, (errors.TimeoutError, TimeoutError)):
        hint = ", and that this port speaks TLS" if where.startswith("rediss:") else ""
        return BrokerError(f"Redis at {where} does not answer; check redis.url and the network{hint}")
    if isinstance(error, (errors.ConnectionError, OSError)):
        return BrokerError(f"Redis at {where} cannot be reached ({_reason(error)}); {_hint(where)}")
    return BrokerError(f"Redis at {where}: {_plain(text)}")


@contextlib.contextmanager
def broker_errors(where: str) -> Iterator[None]:
    """Turns what the client library raises in the block into a :class:`~webgym.errors.BrokerError`."""
    try:
        yield
    except (errors.RedisError, OSError) as e:
        raise broker_error(e, where) from e


def _hint(where: str) -> str:
    if where.startswith("unix:"):
        return "is the server running?"
    if where.startswith("redis:"):
        return "is the server running, and if it speaks TLS, does the URL begin with rediss://?"
    return "does this port speak TLS, and does the server want redis.tls.certFile and keyFile?"


def _reason(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return _plain(str(error)) or type(error).__name__


def _tls_reason(text: str) -> str:
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER" in text:
        return "the server does not speak TLS on this port; use redis:// or the TLS port"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        found = re.search(r"certificate verify failed: ([^(\n]*)", text)
        detail = found.group(1).strip(" .") if found else "unknown authority"
        return f"its certificate is not trusted ({detail}); name the authority in redis.tls.caFile"
    if "ALERT" in text or "certificate required" in text:
        return f"the server refused our side ({_plain(text)}); it may want redis.tls.certFile and keyFile"
    return _plain(text)


def _plain(text: str) -> str:
    """One line, of bounded length, without the quotes of Redis errors."""
    return " ".join(text.split())[:200].rstrip(".")
