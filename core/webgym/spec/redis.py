"""Where tasks, parameters and experience are exchanged."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from webgym.spec.base import Rule, SpecModel, Text
from webgym.spec.quantity import Quantity, QuantityBounds
from webgym.spec.secrets import PasswordSource, has_url_credentials

__all__ = ["HOST_NAME", "Redis", "RedisTls"]

_URL = r"^(rediss?://[^/?#@\s\x00-\x1f\x7f]+(/[0-9]{1,5})?|unix:///[^?#@\s\x00-\x1f\x7f]+)$"
HOST_NAME = r"^[A-Za-z0-9._:-]+$"


def _redis_url(url: str) -> str:
    # The URL is never quoted back: whatever is wrong with it, it may hold a password.
    if has_url_credentials(url):
        raise PydanticCustomError(
            "literal_secret", "holds a password; take it out and name its source in redis.passwordFrom"
        )
    if "@" in url:
        raise PydanticCustomError("redis_url", "holds a user; take it out and give it as redis.username")
    if "?" in url or "#" in url:
        raise PydanticCustomError("redis_url", "takes no ? or #; use the other keys of redis for options")
    if re.fullmatch(_URL, url) is None:
        raise PydanticCustomError(
            "redis_url", "must look like redis://host:6379/0, rediss://host:6379/0 or unix:///path/to/socket"
        )
    if not url.startswith("unix:"):
        try:
            port = urlsplit(url).port
        except ValueError:
            port = 0
        if port == 0:
            raise PydanticCustomError("redis_url", "its port must be a number from 1 to 65535")
    return url


class RedisTls(SpecModel):
    """Certificates for a `rediss://` server. Without any, the system's authorities are trusted."""

    ca_file: Text | None = None
    """PEM file of the authorities that may have signed the server's certificate."""
    cert_file: Text | None = None
    """PEM file of the client's certificate, for servers that ask for one."""
    key_file: Text | None = None
    """PEM file of the client's private key."""
    secret_name: (
        Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
        | None
    ) = None
    """Kubernetes Secret with ca.crt and, where needed, tls.crt and tls.key; the operator mounts it, and it
    takes the place of the files above."""
    server_name: Annotated[str, Field(min_length=1, max_length=253, pattern=HOST_NAME)] | None = None
    """Name expected in the server's certificate, when it is not the host of the URL."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            message="certFile and keyFile belong together; give both or neither",
            cel="has(self.certFile) == has(self.keyFile)",
            check=lambda self: (self.cert_file is None) == (self.key_file is None),
            field="cert_file",
        ),
        Rule(
            message="secretName takes the place of caFile, certFile and keyFile; give one or the other",
            cel="!has(self.secretName) || !(has(self.caFile) || has(self.certFile) || has(self.keyFile))",
            check=lambda self: (
                self.secret_name is None or not (self.ca_file or self.cert_file or self.key_file)
            ),
            field="secret_name",
        ),
    )


class Redis(SpecModel):
    """The Redis or Valkey server. Without `url`, the run brings its own: embedded, on a Unix socket, under
    `webgym run`; a StatefulSet on a cluster."""

    url: Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_redis_url)] | None = Field(
        default=None, json_schema_extra={"pattern": _URL}
    )
    """Address of a server of yours: `redis://host:6379/0`, `rediss://` for TLS, or `unix:///path`. Never
    with a password inside; see `passwordFrom`."""
    username: (
        Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\s:@\x00-\x1f\x7f]+$")] | None
    ) = None
    """ACL user to log in as. Left out: the default user."""
    password_from: PasswordSource | None = None
    """Where the password is read from. Left out: the server asks for none."""
    tls: RedisTls | None = None
    """Certificates, for `rediss://`."""
    connect_timeout_seconds: Annotated[float, Field(gt=0, le=300)] = 5.0
    """How long to try to connect, in seconds, before the server counts as unreachable."""
    max_memory: Annotated[Quantity, QuantityBounds("16Mi", "1Ti")] = Field(default=Quantity("512Mi"))
    """Memory of a server that the run brings itself, as a quantity. Full memory pauses workers; nothing is
    lost."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            message="username, passwordFrom and tls belong to a server of yours: give its url too",
            cel="has(self.url) || !(has(self.username) || has(self.passwordFrom) || has(self.tls))",
            check=lambda self: self.url is not None or not (self.username or self.password_from or self.tls),
            field="url",
        ),
        Rule(
            message="username needs passwordFrom",
            cel="!has(self.username) || has(self.passwordFrom)",
            check=lambda self: self.username is None or self.password_from is not None,
            field="username",
        ),
        Rule(
            message="tls needs a url that starts with rediss://",
            cel="!has(self.tls) || !has(self.url) || self.url.startsWith('rediss://')",
            check=lambda self: self.tls is None or self.url is None or self.url.startswith("rediss://"),
            field="tls",
        ),
    )
