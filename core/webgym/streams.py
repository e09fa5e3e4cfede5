"""The standard streams of a command: what cannot be written to stdout is an error, to stderr it is not.

A stream that the caller closed is opened again on a file that refuses (stdin, stdout) or swallows (stderr) everything.
Otherwise the next file or socket that is opened would get its number, and be written to by ``print``.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from webgym.errors import WebGymError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["StdoutLost", "drop_stdout", "guard_streams"]


class StdoutLost(WebGymError, OSError):
    """Standard output cannot be written. An OSError as well, for those who can go on without it."""


class _Descriptor(io.RawIOBase):
    """A descriptor that others own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)


class _Stdout(_Descriptor):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return os.write(self._descriptor, data)
        except BrokenPipeError:
            raise  # its reader has seen enough
        except OSError as error:
            raise StdoutLost(f"standard output cannot be written: {error.strerror}") from error


class _Stderr(_Descriptor):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return os.write(self._descriptor, data)
        except OSError:
            return memoryview(data).nbytes  # there is nobody left to tell


def guard_streams() -> None:
    """Make the streams of :mod:`sys` behave as this module says; those that a program has replaced stay."""
    # In this order: each takes the lowest number that is free.
    _reopen(0, os.O_WRONLY)
    _reopen(1, os.O_RDONLY)
    _reopen(2, os.O_WRONLY)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(_Stdout(1), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(_Stderr(2), sys.stderr, line_buffering=True)


def drop_stdout() -> None:
    """Send what is left in stdout's buffer nowhere: Python writes it once more at its end, and would fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _reopen(descriptor: int, flags: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        os.open(os.devnull, flags)


def _stream(raw: _Descriptor, old: TextIO | None, *, line_buffering: bool = False) -> io.TextIOWrapper:
    # None where the caller had closed it.
    known = old if isinstance(old, io.TextIOWrapper) else None
    errors = "strict" if known is None or known.errors is None else known.errors
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8" if known is None else known.encoding,
        # A terminal that lacks a letter is no reason to fail.
        errors="backslashreplace" if errors == "strict" else errors,
        # The buffer below would hold back what PYTHONUNBUFFERED wants at once.
        line_buffering=line_buffering or raw.isatty() or (known is not None and known.write_through),
    )
