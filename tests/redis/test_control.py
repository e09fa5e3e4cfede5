"""What is read of a run's course: JSON, or one clear line."""

from __future__ import annotations

import json

import pytest
import redis

from webgym.control import read_control
from webgym.errors import ProtocolError
from webgym.keys import Keys


def test_fields_are_json_and_may_be_missing(client: redis.Redis, keys: Keys) -> None:
    client.hset(keys.control, mapping={"phase": json.dumps("train"), "cursors": json.dumps({"a": 3})})
    assert read_control(client, keys, "phase", "reason", "cursors") == ["train", None, {"a": 3}]


def test_what_somebody_else_wrote_is_named(client: redis.Redis, keys: Keys) -> None:
    client.hset(keys.control, "phase", "train")
    with pytest.raises(ProtocolError, match=r"field 'phase' of .* is no JSON .*HDEL it"):
        read_control(client, keys, "phase")
