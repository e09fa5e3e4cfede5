"""Arrays on the wire: little-endian bytes with dtype and shape, packed where no value is lost; decoding trusts
nothing, and copies only what was packed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webgym.errors import ProtocolError
from webgym.protocol import webgym_pb2 as pb
from webgym.protocol.packing import (
    pack_bits,
    pack_unit_bytes,
    pack_xor_zlib,
    unpack_bits,
    unpack_unit_bytes,
    unpack_xor_zlib,
)

__all__ = [
    "MAX_DIMENSIONS",
    "WIRE_DTYPES",
    "array_from",
    "dtype_code",
    "dtype_of",
    "is_finite",
    "write_array",
]

MAX_DIMENSIONS = 8

WIRE_DTYPES: dict[int, np.dtype[np.generic]] = {
    pb.DTYPE_FLOAT16: np.dtype("<f2"),
    pb.DTYPE_FLOAT32: np.dtype("<f4"),
    pb.DTYPE_FLOAT64: np.dtype("<f8"),
    pb.DTYPE_UINT8: np.dtype("u1"),
    pb.DTYPE_INT32: np.dtype("<i4"),
    pb.DTYPE_INT64: np.dtype("<i8"),
}
"""The dtypes that may travel. Nothing here can hold an object."""

_CODES: dict[np.dtype[np.generic], pb.DType] = {
    np.dtype(np.float16): pb.DTYPE_FLOAT16,
    np.dtype(np.float32): pb.DTYPE_FLOAT32,
    np.dtype(np.float64): pb.DTYPE_FLOAT64,
    np.dtype(np.uint8): pb.DTYPE_UINT8,
    np.dtype(np.int32): pb.DTYPE_INT32,
    np.dtype(np.int64): pb.DTYPE_INT64,
}

# Exponent bits all set: infinity or NaN. On the bit patterns, because float16 arithmetic is slow on most
# CPUs.
_FLOAT16_EXPONENT = np.uint16(0x7C00)


def dtype_code(dtype: np.dtype[np.generic], what: str) -> pb.DType:
    """The wire's number for a dtype.

    Raises:
        ProtocolError: that dtype does not travel.
    """
    code = _CODES.get(dtype.newbyteorder("="))
    if code is None:
        raise ProtocolError(f"{what}: dtype {dtype} cannot be sent; use one of {_allowed()}")
    return code


def dtype_of(code: int, what: str) -> np.dtype[np.generic]:
    """The dtype of a number from the wire.

    Raises:
        ProtocolError: no such dtype.
    """
    dtype = WIRE_DTYPES.get(code)
    if dtype is None:
        raise ProtocolError(f"{what}: unknown dtype number {code}")
    return dtype


def _allowed() -> str:
    return ", ".join(str(d) for d in _CODES)


def write_array(
    message: pb.Array,
    array: NDArray[np.generic],
    what: str,
    dtype: str | None = None,
    packing: pb.Packing = pb.PACKING_RAW,
) -> None:
    """Fill a protobuf array.

    Args:
        message: to be filled.
        array: any memory layout and byte order.
        what: its name, for errors.
        dtype: little-endian wire dtype to convert to (``"<f2"``); None keeps the array's own.
        packing: to be used if it keeps every value; otherwise the array travels raw.

    Raises:
        ProtocolError: the dtype does not travel.
    """
    wire = np.dtype(dtype) if dtype is not None else array.dtype.newbyteorder("<")
    message.dtype = dtype_code(wire, what)
    message.shape.extend(array.shape)
    data = _packed(array, packing)
    if data is None:
        message.data = np.ascontiguousarray(array, dtype=wire).tobytes()
    else:
        message.data = data
        message.packing = packing


def _packed(array: NDArray[Any], packing: pb.Packing) -> bytes | None:
    if packing == pb.PACKING_UNIT_BYTES:
        return pack_unit_bytes(array)
    if packing == pb.PACKING_BITS:
        return pack_bits(array)
    if packing == pb.PACKING_XOR_ZLIB:
        return pack_xor_zlib(array)
    return None


def array_from(
    message: pb.Array, what: str, *, dtype: np.dtype[np.generic], shape: Sequence[int | None], limit: int
) -> NDArray[np.generic]:
    """The array of a protobuf array, read-only: a view of its bytes, or a new one where they are packed.

    Args:
        message: from the wire.
        what: its name, for errors.
        dtype: what it must hold.
        shape: what it must have; None where any length from 0 is right.
        limit: most bytes that it may take once it is unpacked.

    Raises:
        ProtocolError: dtype, shape, packing or the number of bytes are wrong.
    """
    if message.dtype != _CODES[dtype]:
        raise ProtocolError(f"{what}: dtype {dtype_of(message.dtype, what)} where {dtype} belongs")
    if len(message.shape) > MAX_DIMENSIONS:
        raise ProtocolError(f"{what}: {len(message.shape)} dimensions; at most {MAX_DIMENSIONS}")
    found = tuple(message.shape)
    if len(found) != len(shape) or any(
        want not in (None, got) for want, got in zip(shape, found, strict=True)
    ):
        wanted = ", ".join("*" if n is None else str(n) for n in shape)
        raise ProtocolError(f"{what}: shape {found} where ({wanted}) belongs")
    packing, data = message.packing, message.data
    # Python integers: a forged shape cannot overflow into the right size.
    size = dtype.itemsize * math.prod(found)
    if size > limit:
        raise ProtocolError(f"{what}: {dtype} {found} takes {size} bytes; at most {limit}")
    if packing == pb.PACKING_RAW:
        if size != len(data):
            raise ProtocolError(f"{what}: {len(data)} bytes where {dtype} {found} takes {size}")
        return np.frombuffer(data, WIRE_DTYPES[message.dtype]).reshape(found)
    array = _unpacked(data, packing, found, dtype, what)
    array.flags.writeable = False
    return array


def _unpacked(
    data: bytes, packing: int, found: tuple[int, ...], dtype: np.dtype[np.generic], what: str
) -> NDArray[np.generic]:
    if packing == pb.PACKING_UNIT_BYTES and dtype.kind == "f" and dtype.itemsize <= 4:
        return unpack_unit_bytes(data, found, dtype, what)
    if packing == pb.PACKING_BITS and dtype == np.uint8:
        return unpack_bits(data, found, what)
    if packing == pb.PACKING_XOR_ZLIB and dtype == np.uint8 and found:
        return unpack_xor_zlib(data, found, what)
    raise ProtocolError(
        f"{what}: packing {packing} of {dtype} is unknown to this program: run the same release of WebGym everywhere"
    )


def is_finite(array: NDArray[np.generic]) -> bool:
    """Whether a float array holds neither infinity nor NaN."""
    if array.dtype.itemsize == 2:
        bits = array.view("<u2")
        return not bool(np.any((bits & _FLOAT16_EXPONENT) == _FLOAT16_EXPONENT))
    return bool(np.isfinite(array).all())
