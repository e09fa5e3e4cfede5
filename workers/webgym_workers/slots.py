"""Shared memory between the browser processes and the inference process of one worker, and the messages beside it.

One slot per actor: its observation, and the Q values that inference answers with. An actor writes its slot, then sends
a :class:`Request` on a datagram socket; inference reads the slot, writes the Q values, and sends a :class:`Reply`.
The slot belongs to the actor except between request and reply, so no lock is needed: a reply whose sequence number is
not the one last sent is from a request that was given up, and is dropped.

Memory and sockets are inherited as file descriptors of files without names: whichever process dies, and however,
nothing is left behind, and a restarted process finds the requests that its predecessor did not read.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webgym.schema import Observation, Schema

__all__ = ["ObservationSlots", "Reply", "Request", "channel"]

_REQUEST = struct.Struct("<HIq")
_REPLY = struct.Struct("<HIq")


class Request(NamedTuple):
    """Ask for the Q values of one slot."""

    slot: int
    sequence: int
    version: int
    """Parameter version to use; 0 for the newest."""

    def pack(self) -> bytes:
        """One datagram."""
        return _REQUEST.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> Request:
        """From one datagram.

        Raises:
            struct.error: it is not one.
        """
        return cls(*_REQUEST.unpack(data))


class Reply(NamedTuple):
    """The slot's Q values are there."""

    slot: int
    sequence: int
    version: int
    """Parameter version that was used; -1 when the one asked for does not exist any more."""

    def pack(self) -> bytes:
        """One datagram."""
        return _REPLY.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> Reply:
        """From one datagram.

        Raises:
            struct.error: it is not one.
        """
        return cls(*_REPLY.unpack(data))


def slot_dtype(schema: Schema) -> np.dtype[np.void]:
    """One slot's layout: the observation's fields, then ``q`` float32 (actions,)."""
    fields = [(name, spec.dtype, spec.shape) for name, spec in schema.fields().items()]
    return np.dtype([*fields, ("q", np.dtype(np.float32), (schema.actions,))], align=True)


class ObservationSlots:
    """The slots, as views of one shared mapping.

    Args:
        schema: sizes of the observation.
        count: how many slots there are.
        fd: descriptor of the shared file; it stays the caller's.
    """

    def __init__(self, schema: Schema, count: int, fd: int) -> None:
        self.schema = schema
        dtype = slot_dtype(schema)
        size = dtype.itemsize * count
        if os.fstat(fd).st_size < size:
            raise ValueError(
                f"the shared memory holds {os.fstat(fd).st_size} bytes, {count} slots need {size}"
            )
        self._map = mmap.mmap(fd, size)
        self._slots: NDArray[np.void] = np.frombuffer(self._map, dtype=dtype, count=count)

    @staticmethod
    def create(schema: Schema, count: int) -> int:
        """A new shared file of the right size, without a name: it is gone with its last descriptor."""
        size = slot_dtype(schema).itemsize * count
        memory = Path("/dev/shm")
        directory = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, size) if hasattr(os, "posix_fallocate") else file.truncate(
                size
            )
            return os.dup(file.fileno())

    def write(self, slot: int, observation: Observation) -> None:
        """Copy an observation into its slot."""
        row = self._slots[slot]
        for name, array in observation.items():
            row[name] = array

    def read(self, slots: list[int]) -> Observation:
        """The observations of some slots as one batch."""
        return {name: self._slots[name][slots] for name in self.schema.fields()}

    def write_q(self, slots: list[int], q: NDArray[np.float32]) -> None:
        """Store Q values (len(slots), actions)."""
        self._slots["q"][slots] = q

    def q(self, slot: int) -> NDArray[np.float32]:
        """A copy of a slot's Q values, float32 (actions,)."""
        return np.array(self._slots["q"][slot], dtype=np.float32)


def channel() -> tuple[socket.socket, socket.socket]:
    """A pair of datagram sockets; messages keep their borders and arrive in order."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
