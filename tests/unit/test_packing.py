"""Packings keep every value, or decline; and refuse bytes that are not what they should be."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from messages import SMALL, assert_same, make_batch

from webgym.benches.wire import WireBench, recorded_episode
from webgym.errors import ProtocolError
from webgym.protocol import MAX_MESSAGE_BYTES, TransitionBatch
from webgym.protocol import packing as p
from webgym.protocol import webgym_pb2 as pb

HALF, SINGLE = np.dtype(np.float16), np.dtype(np.float32)
FRAMED = replace(SMALL, frame=(6, 5, 3))


@pytest.mark.parametrize("dtype", [HALF, SINGLE])
def test_features_take_a_byte_each_and_come_back_exactly(dtype: np.dtype[np.generic]) -> None:
    values = np.append(np.arange(255) / 256, 1.0).astype(dtype).reshape(2, -1)
    data = p.pack_unit_bytes(values)
    assert data is not None
    assert len(data) == values.size
    found = p.unpack_unit_bytes(data, values.shape, dtype, "dom")
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, values)


@settings(max_examples=200, deadline=None)
@given(
    arrays.arrays(
        np.float32,
        st.integers(0, 5),
        elements=st.one_of(st.integers(-2, 258).map(lambda n: n / 256), st.floats(width=32)),
    )
)
def test_floats_of_any_kind_are_kept_or_declined(values: np.ndarray) -> None:
    data = p.pack_unit_bytes(values)
    fit = all(v in (k / 256 for k in (*range(255), 256)) and math.copysign(1, v) > 0 for v in values.tolist())
    assert (data is not None) == fit
    if data is not None:
        assert p.unpack_unit_bytes(data, values.shape, SINGLE, "x").tobytes() == values.tobytes()


@given(arrays.arrays(np.uint8, arrays.array_shapes(max_dims=3, min_side=0), elements=st.integers(0, 2)))
def test_masks_take_a_bit_each_or_are_declined(mask: np.ndarray) -> None:
    data = p.pack_bits(mask)
    assert (data is None) == bool((mask > 1).any())
    if data is not None:
        assert len(data) == -(-mask.size // 8)
        np.testing.assert_array_equal(p.unpack_bits(data, mask.shape, "mask"), mask)


@given(arrays.arrays(np.uint8, st.tuples(st.integers(0, 4), st.just(3), st.just(3))))
def test_any_pictures_come_back(pictures: np.ndarray) -> None:
    np.testing.assert_array_equal(
        p.unpack_xor_zlib(p.pack_xor_zlib(pictures), pictures.shape, "frame"), pictures
    )


def test_frames_that_hardly_change_take_few_bytes() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3)).astype(np.uint8).repeat(10, axis=0)
    pictures[5:, 3, 4] = 7
    assert len(p.pack_xor_zlib(pictures)) < pictures[0].nbytes * 1.1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "where .* takes 18"),
        (b"no zlib at all", "damaged"),
        (zlib.compress(bytes(17)), "17 bytes where .* takes 18"),
        (zlib.compress(bytes(19)), "19 bytes where .* takes 18"),
        (zlib.compress(bytes(10**7)), "19 bytes where .* takes 18"),  # Unpacked no further than that.
        (zlib.compress(bytes(18))[:-2], "truncated"),
    ],
)
def test_damaged_and_oversized_pictures_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=f"frame: .*{said}"):
        p.unpack_xor_zlib(data, (2, 3, 3), "frame")


def test_a_message_says_how_each_array_is_packed_and_none_is_larger_than_raw() -> None:
    made = make_batch(FRAMED)
    made.observations["dom"][0, 0, 0] = 1.0
    for name in ("text", "pair"):
        array = made.observations[name]
        array[array == 255 / 256] = 0
    made.observations["goal"][0, 0] = 0.3
    data = made.encode(FRAMED)
    body = pb.Envelope.FromString(data).transitions
    assert {o.name: o.array.packing for o in body.observations} == {
        "dom": pb.PACKING_UNIT_BYTES,
        "text": pb.PACKING_UNIT_BYTES,
        "pair": pb.PACKING_UNIT_BYTES,
        "goal": pb.PACKING_RAW,
        "node_mask": pb.PACKING_BITS,
        "action_mask": pb.PACKING_BITS,
        "frame": pb.PACKING_XOR_ZLIB,
    }
    made.observations["goal"][0, 0] = np.float16(0.3)
    assert_same(TransitionBatch.decode(data, FRAMED), made)


@pytest.mark.parametrize(
    ("field", "packing", "said"),
    [
        ("dom", pb.PACKING_BITS, "packing 2 of float16 is unknown"),
        ("frame", pb.PACKING_UNIT_BYTES, "packing 1 of uint8 is unknown"),
        ("node_mask", 99, "packing 99 of uint8 is unknown"),
        ("node_mask", pb.PACKING_XOR_ZLIB, "damaged"),
    ],
)
def test_a_packing_that_does_not_fit_is_refused_by_name(field: str, packing: int, said: str) -> None:
    envelope = pb.Envelope.FromString(make_batch(FRAMED).encode(FRAMED))
    for entry in envelope.transitions.observations:
        if entry.name == field:
            entry.array.packing = packing  # type: ignore[assignment]
    with pytest.raises(ProtocolError, match=f"{field}: .*{said}"):
        TransitionBatch.decode(envelope.SerializeToString(), FRAMED)


def test_a_small_message_cannot_ask_for_much_memory() -> None:
    schema = replace(SMALL, frame=(224, 224, 3))
    envelope = pb.Envelope.FromString(make_batch(schema).encode(schema))
    rows = MAX_MESSAGE_BYTES // (224 * 224 * 3) + 1
    (frame,) = (o.array for o in envelope.transitions.observations if o.name == "frame")
    frame.shape[0] = rows
    with pytest.raises(ProtocolError, match="frame: shape"):  # The other arrays have fewer rows.
        TransitionBatch.decode(envelope.SerializeToString(), schema)
    for entry in envelope.transitions.observations:
        entry.array.shape[0] = rows
        if entry.name != "frame":
            entry.array.packing = pb.PACKING_BITS if entry.name.endswith("_mask") else pb.PACKING_RAW
            dtype = np.uint8 if entry.name.endswith("_mask") else np.float16
            size = math.prod(entry.array.shape)
            entry.array.data = bytes(-(-size // 8)) if dtype is np.uint8 else bytes(2 * size)
    with pytest.raises(ProtocolError, match=f"frame: .* at most {MAX_MESSAGE_BYTES}"):
        TransitionBatch.decode(envelope.SerializeToString(), schema)


@pytest.mark.parametrize("frames", [False, True])
def test_recorded_episodes_stay_readable(frames: bool) -> None:
    schema, batch = recorded_episode(frames=frames)
    assert (batch.task, len(batch), batch.rows) == ("miniwob.book-flight", 16, 17)
    assert ("frame" in batch.observations) == frames
    assert batch.action.tolist() == [2, 81, 90, 89, 400, 82, 81, 4, 83, 3, 91, 3, 401, 2, 10, 81]
    assert_same(TransitionBatch.decode(batch.encode(schema), schema), batch)


def test_the_bench_compares_like_with_like() -> None:
    pytest.importorskip("orjson")
    import argparse

    result = WireBench().run(argparse.Namespace(runs=3))
    assert result.figures["bytes_saved"] > 0.6
    assert [row["way"] for row in result.rows][:2] == ["protobuf, without frames", "JSON, without frames"]
