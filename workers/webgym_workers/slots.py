"""Shared memory between the browser processes and the inference process of one worker, and the messages beside it.

One slot per actor: its observation, and the Q values that inference answers with. An actor writes its slot, then sends
a :class:`Request` on a datagram socket; inference reads the slot, writes the Q values, and sends a :class:`Reply`.
The slot belongs to the actor except between request and reply, so no lock is needed: a reply whose sequence number is
not the one last sent is from a request that was given up, and is dropped.

Frames are too large to be moved: behind the slots lies the ring that they are made in, and a slot holds the number of
its frame's cell.

Memory and sockets are inherited as file descriptors of files without names: whichever process dies, and however,
nothing is left behind, and a restarted process finds the requests that its predecessor did not read.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webgym.schema import Observation, Schema
from webgym_workers.frames.ring import CELLS_PER_BROWSER, FrameRing, ring_bytes
from webgym_workers.sharedmem import nameless_file

__all__ = ["ObservationSlots", "Reply", "Request", "channel"]

_REQUEST = struct.Struct("<HIq")
_REPLY = struct.Struct("<HIq")


class Request(NamedTuple):
    """Ask for the Q values of one slot."""

    slot: int
    sequence: int
    version: int
    """Parameter version to use; 0 for the newest, -v for the newest once that is v or later."""

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
    """One slot's layout: the observation's fields, then ``q`` float32 (actions,).

    In place of a frame: how far its cell is from the slot's own, int32.
    """
    fields: list[tuple[str, np.dtype[np.generic], tuple[int, ...]]] = [
        (name, np.dtype(np.int32), ()) if name == "frame" else (name, spec.dtype, spec.shape)
        for name, spec in schema.fields().items()
    ]
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
        self.count = count
        size = _file_size(schema, count)
        if os.fstat(fd).st_size < size:
            raise ValueError(
                f"the shared memory holds {os.fstat(fd).st_size} bytes, {count} slots need {size}"
            )
        self._map = mmap.mmap(fd, size)
        self._slots: NDArray[np.void] = np.frombuffer(self._map, dtype=slot_dtype(schema), count=count)
        self._ring = self._frames(0, 0) if schema.frame else None

    @staticmethod
    def create(schema: Schema, count: int) -> int:
        """A new shared file of the right size, without a name: it is gone with its last descriptor.

        Raises:
            RunError: it does not fit into the shared memory.
        """
        return nameless_file(_file_size(schema, count), f"the observations of {count} browsers")

    def frames(self, first: int, count: int) -> FrameRing | None:
        """Where the frames of ``count`` slots from ``first`` on are made, by the one process that has them.

        None when the schema has no frame.
        """
        return self._frames(first, count) if self.schema.frame else None

    def _frames(self, first: int, count: int) -> FrameRing:
        # One cell of each slot is for frames that were not made in the ring; it is the slot's as the slot is.
        assert self.schema.frame is not None
        return FrameRing(
            self.schema.frame,
            self.count * (1 + CELLS_PER_BROWSER),
            self._map,
            offset=_ring_offset(self.schema, self.count),
            first=self.count + first * CELLS_PER_BROWSER,
            count=count * CELLS_PER_BROWSER,
        )

    def write(self, slot: int, observation: Observation) -> None:
        """Put an observation into its slot.

        A frame made in the ring stays where it is; the caller holds it until the answer.
        """
        row = self._slots[slot]
        for name, array in observation.items():
            if name == "frame" and self._ring is not None:
                cell = self._ring.cell_of(array)
                if cell is None:
                    self._ring.write(slot, array)
                row[name] = 0 if cell is None else cell - slot
            else:
                row[name] = array

    def read(self, slots: list[int]) -> Observation:
        """The observations of some slots as one batch.

        Copies, but for the frame of a single slot: that is read in place, and good until the answer.
        """
        batch: Observation = {name: self._slots[name][slots] for name in self.schema.fields()}
        if self._ring is not None:
            batch["frame"] = self._ring.read(np.asarray(slots, np.int32) + self._slots["frame"][slots])
        return batch

    def write_q(self, slots: list[int], q: NDArray[np.float32]) -> None:
        """Store Q values (len(slots), actions)."""
        self._slots["q"][slots] = q

    def q(self, slot: int) -> NDArray[np.float32]:
        """A copy of a slot's Q values, float32 (actions,)."""
        return np.array(self._slots["q"][slot], dtype=np.float32)


def channel() -> tuple[socket.socket, socket.socket]:
    """A pair of datagram sockets; messages keep their borders and arrive in order."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)


def _ring_offset(schema: Schema, count: int) -> int:
    """Where the ring begins: behind the slots, on a page of its own."""
    return -(-slot_dtype(schema).itemsize * count // mmap.PAGESIZE) * mmap.PAGESIZE


def _file_size(schema: Schema, count: int) -> int:
    if schema.frame is None:
        return slot_dtype(schema).itemsize * count
    return _ring_offset(schema, count) + ring_bytes(schema.frame, count * (1 + CELLS_PER_BROWSER))
