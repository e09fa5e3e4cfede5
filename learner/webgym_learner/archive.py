"""Nested dictionaries of arrays in ``.npz`` files, read without believing or executing what a file says."""

from __future__ import annotations

import math
import tokenize
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

__all__ = ["empty_dictionaries", "read_arrays", "write_arrays"]


def write_arrays(file: BinaryIO, tree: Mapping[str, Any]) -> None:
    """Writes nested dictionaries of arrays, each array under the path of its keys, joined by ``/``.

    Raises:
        TypeError: an array holds Python objects, or a key is empty or has a ``/``.
    """
    # Stored, not deflated: weights do not compress, and a stored archive cannot unpack to more than it is.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in _flat(tree):
            if array.dtype.hasobject:
                raise TypeError(f"the array {name} holds Python objects")
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)


def read_arrays(path: Path, empty: Collection[str] = ()) -> dict[str, Any]:
    """Reads what :func:`write_arrays` wrote; the arrays are read-only.

    Args:
        path: the file.
        empty: what :func:`empty_dictionaries` said of the dictionaries written.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not such a file, or contradicts itself.
        zipfile.BadZipFile: it is not an archive.
    """
    tree: dict[str, Any] = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_STORED or not info.filename.endswith(".npy"):
                raise ValueError(f"{info.filename} is not a stored array")
            _place(tree, info.filename.removesuffix(".npy"), _read_array(archive, info))
    for name in empty:
        if name:
            _place(tree, name, {})
    return tree


def empty_dictionaries(tree: Mapping[str, Any]) -> list[str]:
    """Paths of the dictionaries without contents, which an archive of arrays cannot show."""
    return [
        path
        for name, value in tree.items()
        if isinstance(value, Mapping)
        for path in ([f"{name}/{deeper}" for deeper in empty_dictionaries(value)] if value else [name])
    ]


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, trusting neither the dtype nor the size of its header."""
    with archive.open(info) as member:
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        version = npy.read_magic(member)
        if version not in read:
            raise ValueError(f"{info.filename} has array format {version}")
        try:
            shape, fortran, dtype = read[version](member)
        except (SyntaxError, tokenize.TokenError, MemoryError) as error:
            # What Python's own parser, which NumPy has read the header, makes of one that is none.
            raise ValueError(f"{info.filename} has no header of an array: {error}") from None
        if dtype.hasobject:
            raise ValueError(f"{info.filename} holds Python objects")
        data = member.read()
    # In whole numbers of any size: a forged shape must not wrap around to a fitting one.
    if len(data) != dtype.itemsize * math.prod(shape):
        raise ValueError(f"{info.filename} has {len(data)} bytes, which is not {dtype} {shape}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _flat(group: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, NDArray[Any]]]:
    for name, value in group.items():
        if not name or "/" in name:
            raise TypeError(f"{name!r} is no name for an array")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", np.asarray(value)


def _place(tree: dict[str, Any], path: str, value: object) -> None:
    *folders, name = path.split("/")
    for folder in folders:
        tree = tree.setdefault(folder, {})
    tree.setdefault(name, value)
