"""Secrets by reference, and the refusal of secrets written into a manifest."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from webgym.errors import UsageError
from webgym.spec.base import Rule, SpecModel, Text

__all__ = ["NO_ZERO", "PasswordSource", "PlainText", "SecretKeyRef", "has_url_credentials", "redact_urls"]

REDIS_PASSWORD_VARIABLE = "WEBGYM_REDIS_PASSWORD"
"""Where the operator puts the password of a `secretKeyRef`, and where a local run looks for it."""

_URL_CREDENTIALS = re.compile(r"(?<=://)([^/?#@\s:]*):([^/?#\s]*)@")


def has_url_credentials(text: str) -> bool:
    """Whether a text holds a URL with a password in it, like ``redis://user:password@host``."""
    return _URL_CREDENTIALS.search(text) is not None


def redact_urls(text: str) -> str:
    """The text with the password of every URL in it replaced by ``***``."""
    return _URL_CREDENTIALS.sub(r"\1:***@", text)


def _no_url_credentials(text: str) -> str:
    if has_url_credentials(text):
        raise PydanticCustomError(
            "literal_secret",
            "holds a password inside a URL; manifests are written out, so give it by reference",
        )
    return text


NO_ZERO = r"^[^\x00]*$"

PlainText = Annotated[str, Field(max_length=8192, pattern=NO_ZERO), AfterValidator(_no_url_credentials)]
"""A text that is written out as it is, and so may not hold the password of a URL; nor a zero character, which no
environment can pass on."""


class SecretKeyRef(SpecModel):
    """A key of a Kubernetes Secret in the run's namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
    """Name of the Secret."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key inside the Secret whose value is the password."""


class PasswordSource(SpecModel):
    """Where a password is read from when a program starts; the manifest itself never holds one."""

    env: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = (
        None
    )
    """Environment variable that holds the password. For runs on one machine; a pod has only what `env`
    sets."""
    file: Text | None = None
    """File whose content, without the newline at its end, is the password; read again whenever a program
    connects."""
    secret_key_ref: SecretKeyRef | None = None
    """Key of a Kubernetes Secret. `webgym run` has no cluster to ask and reads WEBGYM_REDIS_PASSWORD
    instead."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            message="give exactly one of env, file and secretKeyRef",
            cel="[has(self.env), has(self.file), has(self.secretKeyRef)].filter(given, given).size() == 1",
            check=lambda self: (
                sum(source is not None for source in (self.env, self.file, self.secret_key_ref)) == 1
            ),
        ),
    )

    def read(self, environ: Mapping[str, str] = os.environ) -> str:
        """The password itself.

        Raises:
            UsageError: the variable is not set, or the file cannot be read or is empty.
        """
        if self.file is not None:
            try:
                password = Path(self.file).read_text(encoding="utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                raise UsageError(f"redis.passwordFrom.file: cannot read {self.file}: {reason}") from error
            if not password:
                raise UsageError(f"redis.passwordFrom.file: {self.file} is empty; put the password into it")
            return password
        variable = self.env if self.env is not None else REDIS_PASSWORD_VARIABLE
        password = environ.get(variable, "")
        if not password:
            kind = "env" if self.env is not None else "secretKeyRef"
            raise UsageError(
                f"redis.passwordFrom.{kind}: the environment variable {variable} is not set; export it"
            )
        return password


def literal_secrets(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Paths of all texts inside free-form data that hold the password of a URL."""
    if isinstance(value, str):
        return [path] if has_url_credentials(value) else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, inner in items for found in literal_secrets(inner, (*path, key))]
