"""Transitions on the wire: what is written is read back, and what is wrong or forged is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import SMALL, assert_same, make_batch

from webgym.errors import ProtocolError, SchemaMismatch
from webgym.protocol import TransitionBatch
from webgym.protocol import webgym_pb2 as pb
from webgym.schema import Schema


def test_transitions_come_back_exactly() -> None:
    made = make_batch(Schema(), n=10)
    data = made.encode(Schema())
    found = TransitionBatch.decode(data, Schema())
    assert_same(found, made)
    assert found.observations["dom"].dtype == np.float16
    assert found.observations["action_mask"].dtype == np.uint8
    # Half of float32, plus little: the bytes are the arrays.
    assert len(data) < sum(a.nbytes for a in made.observations.values()) * 0.6


def test_frames_travel_as_bytes_when_they_are_on() -> None:
    schema = replace(SMALL, frame=(6, 5, 3))
    made = make_batch(schema)
    made.observations["frame"][:] = np.arange(90, dtype=np.uint8).reshape(6, 5, 3)
    assert_same(TransitionBatch.decode(made.encode(schema), schema), made)
    with pytest.raises(SchemaMismatch):
        TransitionBatch.decode(made.encode(schema), SMALL)


def test_what_is_decoded_is_read_only_and_what_travelled_raw_is_not_copied() -> None:
    made = make_batch()
    made.observations["dom"][:] = 0.3  # No multiple of 1/256: travels as float16.
    found = TransitionBatch.decode(made.encode(SMALL), SMALL)
    assert not any(array.flags.writeable for array in found.observations.values())
    assert not found.observations["dom"].flags.owndata


def test_any_memory_layout_can_be_sent() -> None:
    made = make_batch()
    odd = replace(
        made,
        observations={
            **made.observations,
            "dom": np.asfortranarray(made.observations["dom"]),
        },
        obs_index=np.repeat(made.obs_index, 2)[::2],
    )
    assert_same(TransitionBatch.decode(odd.encode(SMALL), SMALL), made)


def test_float16_features_are_sent_as_they_are() -> None:
    made = make_batch()
    half = replace(made, observations=TransitionBatch.decode(made.encode(SMALL), SMALL).observations)
    assert half.encode(SMALL) == made.encode(SMALL)


def test_a_part_keeps_its_sequence_numbers() -> None:
    part = make_batch().part(1, 3)
    assert (part.first_sequence, len(part)) == (8, 2)
    found = TransitionBatch.decode(part.encode(SMALL), SMALL)
    np.testing.assert_array_equal(found.obs_index, [1, 2])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"obs_index": np.array([0, 1, 2, 5], np.int32)}, "obs_index"),
        ({"next_index": np.array([0, 1, 2, -1], np.int32)}, "next_index"),
        ({"action": np.full(4, SMALL.actions, np.int32)}, "action"),
        ({"reward": np.array([0, np.nan, 0, 0], np.float32)}, "reward"),
        ({"priority": np.array([0, -1, 0, 0], np.float32)}, "priority"),
        ({"priority": np.array([0, np.inf, 0, 0], np.float32)}, "priority"),
        ({"discount": np.array([0, 1.5, 0, 0], np.float32)}, "discount"),
        ({"version": np.array([0, 1, -2, 0], np.int64)}, "version"),
        ({"reward": np.zeros(3, np.float32)}, "reward"),
        ({"reward": np.zeros(4, np.float64)}, "reward"),
        ({"episode": ""}, "episode"),
        ({"episode": "a\nb"}, "episode"),
        ({"worker": "w" * 300}, "worker"),
        ({"first_sequence": -1}, "sequence"),
    ],
)
def test_wrong_columns_are_refused_by_name(change: dict[str, object], named: str) -> None:
    with pytest.raises(ProtocolError, match=named):
        replace(make_batch(), **change).encode(SMALL)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dom", np.full((5, 3, 4), np.nan, np.float32)),
        ("dom", np.full((5, 3, 4), np.inf, np.float16)),
        ("text", np.zeros((4, 2, 3), np.float32)),
        ("dom", np.zeros((5, 3, 4), np.float64)),
        ("node_mask", np.full((5, 3), 2, np.uint8)),
        ("goal", np.zeros((5, 4), np.float32)),
    ],
)
def test_wrong_observations_are_refused_by_name(name: str, value: np.ndarray) -> None:
    made = make_batch()
    with pytest.raises(ProtocolError, match=name):
        replace(made, observations={**made.observations, name: value}).encode(SMALL)


def test_a_float_beyond_float16_is_refused_by_the_reader() -> None:
    made = make_batch()
    huge = replace(made, observations={**made.observations, "goal": np.full((5, 5), 1e30, np.float32)})
    with pytest.raises(ProtocolError, match="goal"), np.errstate(over="ignore"):
        TransitionBatch.decode(huge.encode(SMALL), SMALL)


def forge(data: bytes, change: str) -> bytes:
    envelope = pb.Envelope.FromString(data)
    body = envelope.transitions
    dom = next(entry for entry in body.observations if entry.name == "dom")
    if change == "shape":
        dom.array.shape[0] += 1
    elif change == "shape overflow":
        # 2**32 * 2**32 * ... wraps to 0 in 64 bits.
        del dom.array.shape[:]
        dom.array.shape.extend([2**31, 2**31, 4])
        dom.array.data = b""
    elif change == "dtype":
        dom.array.dtype = pb.DTYPE_INT64
    elif change == "unknown dtype":
        dom.array.dtype = 99  # type: ignore[assignment]
    elif change == "packing":
        dom.array.packing = 7  # type: ignore[assignment]
    elif change == "twice":
        body.observations.append(dom)
    elif change == "missing":
        body.observations.remove(dom)
    elif change == "unknown field":
        dom.name = "eval"
    elif change == "short data":
        dom.array.data = dom.array.data[:-1]
    elif change == "index":
        body.obs_index.data = np.array([0, 1, 2, 1000], "<i4").tobytes()
    elif change == "float":
        body.reward.data = np.array([0, 1, np.nan, 0], "<f4").tobytes()
    elif change == "empty":
        body.ClearField("action")
    elif change == "version":
        envelope.protocol_version = 2
    return envelope.SerializeToString()


@pytest.mark.parametrize(
    "change",
    [
        "shape",
        "shape overflow",
        "dtype",
        "unknown dtype",
        "packing",
        "twice",
        "missing",
        "unknown field",
        "short data",
        "index",
        "float",
        "empty",
        "version",
    ],
)
def test_forged_transitions_are_refused(change: str) -> None:
    data = make_batch().encode(SMALL)
    assert forge(data, "nothing") == data
    with pytest.raises(ProtocolError):
        TransitionBatch.decode(forge(data, change), SMALL)


def test_another_schema_is_refused_with_both_hashes() -> None:
    other = replace(SMALL, nodes=4)
    with pytest.raises(SchemaMismatch) as caught:
        TransitionBatch.decode(make_batch().encode(SMALL), other)
    assert SMALL.hash in str(caught.value)
    assert other.hash in str(caught.value)


def test_an_oversized_message_is_refused_unread() -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return 2**40

    with pytest.raises(ProtocolError, match="at most"):
        TransitionBatch.decode(Long(), SMALL)


@given(st.integers(0, 10**6), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_one_changed_byte_never_escapes_as_another_error(position: int, value: int) -> None:
    data = bytearray(make_batch().encode(SMALL))
    data[position % len(data)] = value
    try:
        found = TransitionBatch.decode(bytes(data), SMALL)
    except ProtocolError:
        return
    found.validate(SMALL)
