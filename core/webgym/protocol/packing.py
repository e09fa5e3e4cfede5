"""How the values of an observation become fewer bytes, all of them kept: pure functions on bytes and arrays.

Each packing has a function that packs, and returns None where an array is not of the kind it is for, and one that
unpacks, and raises :class:`~webgym.errors.ProtocolError` where the bytes are not what that kind takes.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from webgym.errors import ProtocolError

__all__ = [
    "pack_bits",
    "pack_unit_bytes",
    "pack_xor_zlib",
    "unpack_bits",
    "unpack_unit_bytes",
    "unpack_xor_zlib",
]

# 0/256 to 254/256, and the byte 255 for 1.0: features are often exactly 1, and all but never 255/256.
_UNITS = np.append(np.arange(255) / 256, 1.0)
_UNITS_OF_BYTES = {np.dtype(kind): _UNITS.astype(kind) for kind in (np.float16, np.float32)}

# On pages, where little changes from one step to the next, level 6 takes two and a half times as long for an eighth
# fewer bytes.
_LEVEL = 1


def pack_unit_bytes(array: NDArray[np.generic]) -> bytes | None:
    """Floats that are multiples of 1/256 from 0 to 254/256, or 1: a byte each; None where one is anything else."""
    values = np.ascontiguousarray(array, dtype=np.float32)
    # Out of range or NaN becomes some byte or other, which the comparison below finds. It compares bits: -0.0 is not
    # 0.0 for whoever computes with it, and bits compare faster than floats.
    with np.errstate(invalid="ignore", over="ignore"):
        packed = np.minimum(values * np.float32(256), np.float32(255)).astype(np.uint8)
    again = _UNITS_OF_BYTES[np.dtype(np.float32)].take(packed, mode="clip")
    return packed.tobytes() if again.tobytes() == values.tobytes() else None


def unpack_unit_bytes(
    data: bytes, shape: Sequence[int], dtype: np.dtype[np.generic], what: str
) -> NDArray[np.generic]:
    """Floats from a byte each, all of them in [0, 1].

    Raises:
        ProtocolError: the number of bytes is not that of the shape.
    """
    _check_size(len(data), math.prod(shape), shape, what)
    units: NDArray[np.generic] = _UNITS_OF_BYTES[dtype]
    # A byte is always in range; clipping is the one mode of take that needs no second look at the indices.
    return units.take(np.frombuffer(data, np.uint8), mode="clip").reshape(shape)


def pack_bits(array: NDArray[np.uint8]) -> bytes | None:
    """uint8 that are 0 or 1: a bit each; None where one is anything else."""
    if array.size and array.max() > 1:
        return None
    return np.packbits(array).tobytes()


def unpack_bits(data: bytes, shape: Sequence[int], what: str) -> NDArray[np.uint8]:
    """uint8 0 or 1 from a bit each.

    Raises:
        ProtocolError: the number of bytes is not that of the shape.
    """
    count = math.prod(shape)
    _check_size(len(data), -(-count // 8), shape, what)
    return np.unpackbits(np.frombuffer(data, np.uint8), count=count).reshape(shape)


def pack_xor_zlib(pictures: NDArray[np.uint8]) -> bytes:
    """uint8 (M, ...): the first picture and what changes from each to the next, compressed."""
    pictures = np.ascontiguousarray(pictures)
    changes = pictures.copy()
    np.bitwise_xor(pictures[1:], pictures[:-1], out=changes[1:])
    return zlib.compress(changes.data, _LEVEL)


def unpack_xor_zlib(data: bytes, shape: Sequence[int], what: str) -> NDArray[np.uint8]:
    """The pictures uint8 (M, ...).

    Raises:
        ProtocolError: the bytes are damaged, or hold more or fewer than the shape takes.
    """
    count = math.prod(shape)
    stream = zlib.decompressobj()
    try:
        # One more than there should be, never all that somebody packed: a few bytes can hold gigabytes.
        found = stream.decompress(data, count + 1)
    except zlib.error as e:
        raise ProtocolError(f"{what}: the compressed bytes are damaged: {e}") from None
    _check_size(len(found), count, shape, what)
    if not stream.eof:
        raise ProtocolError(f"{what}: the compressed bytes are truncated")
    pictures = np.frombuffer(bytearray(found), np.uint8).reshape(shape)
    # In place and one after the other: XOR.accumulate does the same at a fraction of the speed.
    for index in range(1, len(pictures)):
        np.bitwise_xor(pictures[index], pictures[index - 1], out=pictures[index])
    return pictures


def _check_size(found: int, wanted: int, shape: Sequence[int], what: str) -> None:
    if found != wanted:
        raise ProtocolError(f"{what}: {found} bytes where {tuple(shape)} takes {wanted}")
