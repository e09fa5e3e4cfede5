"""The envelope around every message: protocol version, schema hash, kind of body, limits on what strangers
send."""

from __future__ import annotations

from typing import Literal

from google.protobuf.message import DecodeError, EncodeError

from webgym.errors import ProtocolError, SchemaMismatch
from webgym.protocol import webgym_pb2 as pb

__all__ = [
    "MAX_MESSAGE_BYTES",
    "MAX_NAME",
    "MAX_TEXT",
    "PROTOCOL_VERSION",
    "check_schema",
    "checked_name",
    "checked_text",
    "open_envelope",
    "seal",
]

PROTOCOL_VERSION = 1
"""Version of webgym.proto that this code speaks."""

MAX_MESSAGE_BYTES = 256 * 1024 * 1024
"""Larger messages are refused unread: 256 MiB is some hundred steps with uncompressed frames."""

MAX_NAME = 256
"""Longest id or name, in characters."""

MAX_TEXT = 64 * 1024
"""Longest free text, in characters."""

Body = Literal["transitions", "summary", "task", "parameters"]


def seal(envelope: pb.Envelope, schema_hash: str = "") -> bytes:
    """Bytes of an envelope whose body is filled in.

    Raises:
        ProtocolError: the message is too large.
    """
    envelope.protocol_version = PROTOCOL_VERSION
    envelope.schema_hash = schema_hash
    try:
        data = envelope.SerializeToString()
    except (EncodeError, ValueError) as e:
        raise ProtocolError(f"{envelope.WhichOneof('body')} message cannot be encoded: {e}") from e
    if len(data) > MAX_MESSAGE_BYTES:
        raise ProtocolError(
            f"{envelope.WhichOneof('body')} message of {len(data)} bytes; at most {MAX_MESSAGE_BYTES}"
        )
    return data


def open_envelope(data: bytes, body: Body) -> pb.Envelope:
    """The envelope in ``data``, known to hold that kind of body.

    Raises:
        ProtocolError: too large, truncated, another protocol version, another body, or not ours at all.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"{body} message of {len(data)} bytes; at most {MAX_MESSAGE_BYTES}")
    envelope = pb.Envelope()
    try:
        envelope.ParseFromString(data)
    except DecodeError as e:
        raise _not_ours(data, body) from e
    if not envelope.protocol_version:
        raise _not_ours(data, body)
    if envelope.protocol_version != PROTOCOL_VERSION:
        raise ProtocolError(
            f"{body} message has protocol version {envelope.protocol_version}, this program speaks "
            f"{PROTOCOL_VERSION}: run the same release of WebGym everywhere"
        )
    found = envelope.WhichOneof("body")
    if found != body:
        raise ProtocolError(f"message holds {found or 'nothing'} where {body} belongs")
    return envelope


def _not_ours(data: bytes, body: Body) -> ProtocolError:
    return ProtocolError(f"{body} message of {len(data)} bytes is truncated or not a WebGym message")


def check_schema(found: str, expected: str | None, what: str) -> None:
    """Compare schema hashes; ``expected`` None accepts any.

    Raises:
        SchemaMismatch: they differ; the message names both.
    """
    if expected is not None and found != expected:
        raise SchemaMismatch(
            f"{what}: observation and action schema {found[:64] or '(none)'}, this program has {expected}: "
            "the manifest's observation settings or the releases of WebGym differ"
        )


def checked_name(value: str, what: str, *, empty: bool = False) -> str:
    """An id or name of sane length without control characters.

    Raises:
        ProtocolError: it is empty (unless allowed), too long, or not printable.
    """
    if len(value) > MAX_NAME:
        raise ProtocolError(f"{what} has {len(value)} characters; at most {MAX_NAME}")
    if not value and not empty:
        raise ProtocolError(f"{what} is empty")
    if not value.isprintable():
        raise ProtocolError(f"{what} {value!r} has characters that cannot be printed")
    return value


def checked_text(value: str, what: str) -> str:
    """A free text of sane length.

    Raises:
        ProtocolError: it is too long.
    """
    if len(value) > MAX_TEXT:
        raise ProtocolError(f"{what} has {len(value)} characters; at most {MAX_TEXT}")
    return value
