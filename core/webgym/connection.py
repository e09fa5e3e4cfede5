"""From the manifest's ``redis`` part to a way to log in. Secrets are read here, and nowhere written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webgym.broker import BrokerConfig

if TYPE_CHECKING:
    from webgym.spec import Redis

__all__ = ["broker_config"]


def broker_config(redis: Redis, url: str | None = None) -> BrokerConfig:
    """How to reach the run's server.

    Args:
        redis: the manifest's part.
        url: where the server is when the manifest names none (the embedded one, or the operator's).

    Raises:
        UsageError: no URL at all, a malformed one, or a password source that holds nothing.
    """
    if redis.url is None:
        # A server that the run brought along: its URL is complete, and the manifest's credentials are not for it.
        url = url or ""
        # An embedded server that died does not come back, and a learner that waited for it could not save.
        return BrokerConfig(url, patience=2.0) if url.startswith("unix:") else BrokerConfig(url)
    tls = redis.tls
    return BrokerConfig(
        url=redis.url,
        username=redis.username,
        password=redis.password_from.read() if redis.password_from else None,
        ca_file=tls.ca_file if tls else None,
        cert_file=tls.cert_file if tls else None,
        key_file=tls.key_file if tls else None,
        server_name=tls.server_name if tls else None,
    )
