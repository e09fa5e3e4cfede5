"""Parameters on the wire: they come back whole, and damaged, forged or diverged ones are refused."""

from __future__ import annotations

import numpy as np
import pytest
from messages import STATE

from webgym.errors import ProtocolError
from webgym.protocol import PackedParameters
from webgym.protocol import webgym_pb2 as pb
from webgym.protocol.parameters import pack_parameters, unpack_parameters


def test_parameters_come_back_in_any_number_of_chunks() -> None:
    for chunk_bytes in (1, 16, 1 << 20):
        packed = pack_parameters(5, 2, STATE, "cafe", chunk_bytes)
        found = unpack_parameters(packed, "cafe")
        assert (found.version, found.generation, found.schema_hash) == (5, 2, "cafe")
        assert list(found.state) == list(STATE)
        for name, array in STATE.items():
            np.testing.assert_array_equal(found.state[name], array)
            assert found.state[name].dtype == array.dtype
            assert found.state[name].shape == array.shape


def test_damaged_parameters_are_refused_by_version() -> None:
    packed = pack_parameters(5, 2, STATE, "cafe", 16)
    chunks = [bytes(c) for c in packed.chunks]
    flipped = [bytes([chunks[0][0] ^ 1]) + chunks[0][1:], *chunks[1:]]
    for bad in (flipped, chunks[:-1], [*chunks, b"more"], [chunks[1], chunks[0], *chunks[2:]]):
        with pytest.raises(ProtocolError, match="version 5"):
            unpack_parameters(PackedParameters(packed.header, bad))


def test_forged_parameter_headers_are_refused() -> None:
    packed = pack_parameters(5, 2, STATE, "cafe")
    for change in ("offset", "unaligned", "shape", "name", "dtype"):
        envelope = pb.Envelope.FromString(packed.header)
        entry = envelope.parameters.tensors[0]
        if change == "offset":
            entry.offset = 2**40
        elif change == "unaligned":
            entry.offset = 1
        elif change == "shape":
            entry.shape[0] = 2**31
        elif change == "name":
            envelope.parameters.tensors[1].name = entry.name
        else:
            entry.dtype = pb.DTYPE_FLOAT64
        with pytest.raises(ProtocolError, match="version 5"):
            unpack_parameters(PackedParameters(envelope.SerializeToString(), packed.chunks))


def test_parameters_that_diverged_are_not_published() -> None:
    with pytest.raises(ProtocolError, match="encoder"):
        pack_parameters(1, 1, {"encoder": np.array([np.nan], np.float32)}, "")


def test_half_precision_halves_the_bytes_and_gives_back_float32() -> None:
    rng = np.random.default_rng(0)
    state = {
        **STATE,
        "weight": rng.normal(size=(64, 64)).astype(np.float32),
        "large": np.array([1e5], np.float32),
    }
    whole, half = pack_parameters(1, 1, state, ""), pack_parameters(1, 1, state, "", half=True)
    assert sum(map(len, half.chunks)) < 0.51 * sum(map(len, whole.chunks))
    found = unpack_parameters(half).state
    for name, array in state.items():
        assert found[name].dtype == array.dtype
        assert not found[name].flags.writeable
        np.testing.assert_allclose(found[name], array, rtol=2**-11, atol=2**-25)
    # Beyond float16's range, and what is no float, it is exact.
    for name in ("large", "step", "encoder.bias"):
        np.testing.assert_array_equal(found[name], state[name])
    header = pb.Envelope.FromString(half.header)
    entry = next(t for t in header.parameters.tensors if t.name == "weight")
    assert (entry.dtype, entry.original) == (pb.DTYPE_FLOAT16, pb.DTYPE_FLOAT32)
    entry.original = pb.DTYPE_INT64
    with pytest.raises(ProtocolError, match="weight: float16 cannot stand for int64"):
        unpack_parameters(PackedParameters(header.SerializeToString(), half.chunks))


def test_objects_never_travel_in_parameters() -> None:
    with pytest.raises(ProtocolError, match="cannot be sent"):
        pack_parameters(1, 1, {"x": np.array([object()])}, "")
