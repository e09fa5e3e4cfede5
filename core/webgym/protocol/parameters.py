"""A set of named tensors as one header and chunks of raw bytes: no pickle, nothing executed on loading."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from webgym.errors import ProtocolError
from webgym.protocol import webgym_pb2 as pb
from webgym.protocol.arrays import MAX_DIMENSIONS, dtype_code, dtype_of, is_finite
from webgym.protocol.envelope import MAX_MESSAGE_BYTES, check_schema, checked_name, open_envelope, seal

__all__ = [
    "CHUNK_BYTES",
    "MAX_TENSORS",
    "PackedParameters",
    "Parameters",
    "pack_parameters",
    "unpack_parameters",
]

CHUNK_BYTES = 4 * 1024 * 1024
"""Redis serves nobody else while it copies a value: 4 MiB takes about a millisecond."""

MAX_TENSORS = 10_000

_ALIGNMENT = 8


@dataclass(frozen=True, eq=False)
class Parameters:
    """One version of the policy's parameters."""

    version: int
    generation: int
    """Which incarnation of the learner published it, from 1."""
    state: dict[str, NDArray[np.generic]]
    """Tensors by name, read-only; those that travelled as they are are views of one buffer."""
    schema_hash: str = ""
    time: float = 0.0
    """When it was published, by the learner's clock: Unix time, seconds."""


@dataclass(frozen=True, eq=False)
class PackedParameters:
    """What travels: an encoded header and the chunks it vouches for."""

    header: bytes
    chunks: Sequence[bytes | memoryview] = field(repr=False)


def pack_parameters(
    version: int,
    generation: int,
    state: Mapping[str, NDArray[np.generic]],
    schema_hash: str,
    chunk_bytes: int = CHUNK_BYTES,
    *,
    half: bool = False,
) -> PackedParameters:
    """Header and chunks of some tensors.

    Args:
        version: from 1.
        generation: of the learner, from 1.
        state: tensors by name, any layout; float16/32/64, uint8, int32, int64.
        schema_hash: :attr:`webgym.schema.Schema.hash`.
        chunk_bytes: longest chunk.
        half: float32 travels as float16 and is float32 again when it is unpacked, rounded to 11 bits; a tensor with
            values beyond float16's range travels as it is.

    Raises:
        ProtocolError: a dtype that does not travel, a float that is not finite, or too much of anything.
    """
    envelope = pb.Envelope()
    header = envelope.parameters
    header.version, header.generation, header.time = version, generation, time.time()
    parts: list[bytes] = []
    offset = 0
    for name, array in state.items():
        if array.dtype.kind == "f" and not is_finite(array):
            raise ProtocolError(f"parameters version {version}: {name} holds NaN or infinity")
        entry = header.tensors.add()
        entry.name = checked_name(name, "tensor name")
        sent = _halved(array) if half and array.dtype == np.float32 else array
        entry.dtype = dtype_code(sent.dtype, name)
        if sent.dtype != array.dtype:
            entry.original = dtype_code(array.dtype, name)
        entry.shape.extend(array.shape)
        raw = np.ascontiguousarray(sent, dtype=sent.dtype.newbyteorder("<")).tobytes()
        entry.offset, entry.size = offset, len(raw)
        padding = -len(raw) % _ALIGNMENT
        parts.append(raw)
        parts.append(bytes(padding))
        offset += len(raw) + padding
    if offset > MAX_MESSAGE_BYTES or len(state) > MAX_TENSORS:
        raise ProtocolError(
            f"parameters of {offset} bytes in {len(state)} tensors; "
            f"at most {MAX_MESSAGE_BYTES} in {MAX_TENSORS}"
        )
    data = memoryview(b"".join(parts))
    header.total_bytes = offset
    header.chunk_bytes = chunk_bytes
    header.chunks = math.ceil(offset / chunk_bytes)
    header.sha256 = hashlib.sha256(data).digest()
    chunks = [data[i : i + chunk_bytes] for i in range(0, offset, chunk_bytes)]
    return PackedParameters(seal(envelope, schema_hash), chunks)


def _halved(array: NDArray[np.generic]) -> NDArray[np.generic]:
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    return half if is_finite(half) else array


def unpack_parameters(packed: PackedParameters, schema_hash: str | None = None) -> Parameters:
    """Tensors from header and chunks, checked against length and checksum.

    Args:
        packed: as fetched.
        schema_hash: what the reader has; None accepts any.

    Raises:
        SchemaMismatch: they were published for another schema.
        ProtocolError: truncated, oversized or forged in any other way.
    """
    envelope = open_envelope(packed.header, "parameters")
    header = envelope.parameters
    what = f"parameters version {header.version}"
    check_schema(envelope.schema_hash, schema_hash, what)
    found = sum(len(c) for c in packed.chunks)
    if header.total_bytes > MAX_MESSAGE_BYTES or len(header.tensors) > MAX_TENSORS:
        raise ProtocolError(
            f"{what}: {header.total_bytes} bytes in {len(header.tensors)} tensors is too much"
        )
    if len(packed.chunks) != header.chunks or found != header.total_bytes:
        raise ProtocolError(
            f"{what}: {found} bytes in {len(packed.chunks)} chunks where {header.total_bytes} in "
            f"{header.chunks} belong"
        )
    data = packed.chunks[0] if len(packed.chunks) == 1 else b"".join(packed.chunks)
    if hashlib.sha256(data).digest() != header.sha256:
        raise ProtocolError(f"{what}: the checksum does not fit, the stored bytes are damaged")
    state: dict[str, NDArray[np.generic]] = {}
    for entry in header.tensors:
        name = checked_name(entry.name, f"{what}: tensor name")
        if name in state:
            raise ProtocolError(f"{what}: {name} appears twice")
        state[name] = _tensor(entry, data, f"{what}: {name}")
    return Parameters(header.version, header.generation, state, envelope.schema_hash, header.time)


def _tensor(entry: pb.TensorEntry, data: bytes | memoryview, what: str) -> NDArray[np.generic]:
    dtype = dtype_of(entry.dtype, what)
    if len(entry.shape) > MAX_DIMENSIONS:
        raise ProtocolError(f"{what}: {len(entry.shape)} dimensions; at most {MAX_DIMENSIONS}")
    shape = tuple(entry.shape)
    # Python integers: a forged shape cannot overflow into the right size.
    count = math.prod(shape)
    if count * dtype.itemsize != entry.size or entry.offset + entry.size > len(data):
        raise ProtocolError(f"{what}: {entry.size} bytes at {entry.offset} do not hold {dtype.name} {shape}")
    if entry.offset % _ALIGNMENT:
        raise ProtocolError(f"{what}: starts at byte {entry.offset}, not a multiple of {_ALIGNMENT}")
    try:
        array: NDArray[np.generic] = np.frombuffer(data, dtype, count, entry.offset).reshape(shape)
    except ValueError:  # nothing, in a shape that is too large for an array all the same
        raise ProtocolError(f"{what}: no array can have the shape {shape}") from None
    if dtype.kind == "f" and not is_finite(array):
        raise ProtocolError(f"{what}: holds NaN or infinity")
    if not entry.original:
        return array
    original = dtype_of(entry.original, what)
    if dtype != np.float16 or original != np.float32:
        raise ProtocolError(f"{what}: {dtype.name} cannot stand for {original.name}")
    widened = array.astype(np.float32)
    widened.flags.writeable = False
    return widened
