"""What the programs of a run tell each other of its course: a hash with one JSON value a field."""

from __future__ import annotations

import json
from typing import Any

import redis

from webgym.broker import client_where
from webgym.broker_faults import broker_errors
from webgym.errors import ProtocolError
from webgym.keys import Keys

__all__ = ["read_control"]


def read_control(client: redis.Redis, keys: Keys, *fields: str) -> list[Any]:
    """The values of these fields; None for one that is not there.

    Raises:
        BrokerError: the server does not answer.
        ProtocolError: a value is no JSON; somebody else wrote it.
    """
    where = client_where(client)
    with broker_errors(where):
        found = client.hmget(keys.control, list(fields))
    values = []
    for field, raw in zip(fields, found, strict=True):
        try:
            values.append(None if raw is None else json.loads(raw))
        except ValueError:
            raise ProtocolError(
                f"{where}: the field {field!r} of {keys.control} is no JSON ({repr(raw)[:60]}): something else "
                "than webgym wrote it; HDEL it, and run again with --resume"
            ) from None
    return values
