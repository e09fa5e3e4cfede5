"""The ring of frames: fixed cells in shared memory, written once by whoever makes a frame, read in place by inference.

Who may touch a cell follows from who holds its array. :meth:`FrameRing.acquire` hands out a free cell as a NumPy array;
the cell is free again when the last array of it is gone, views and tensors of it included. So nobody has to give
anything back, and a frame that somebody still looks at is never written over. Each process takes cells from a range of
its own: taking needs no lock between processes. A reader in another process is told a cell's number, and reads only
while the writer, which waits for its answer, holds the array.

When all cells are held, the next frame waits: a slow reader slows the browsers down, and memory stays within bounds.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import mmap
import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

__all__ = ["CELLS_PER_BROWSER", "FrameRing", "ring_bytes"]

log = logging.getLogger(__name__)

CELLS_PER_BROWSER = 4
"""The frame acted on, the one being made, and two for whoever is slow to let go."""
_ALIGNMENT = 64
_COMPLAIN_SECONDS = 5.0


class FrameRing:
    """Cells of one shape.

    Args:
        shape: Of a frame, (height, width, 3).
        cells: How many there are, in all processes.
        memory: The shared memory; None for memory of this process alone.
        offset: Where in it the first cell begins; a multiple of 64.
        first: First cell that this process takes from.
        count: How many it takes from; None for all the rest, 0 for a process that only reads.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        cells: int,
        memory: mmap.mmap | None = None,
        *,
        offset: int = 0,
        first: int = 0,
        count: int | None = None,
    ) -> None:
        self.shape = shape
        self.cells = cells
        self.waits = 0
        """How often a frame had to wait for a free cell."""
        self._size = shape[0] * shape[1] * shape[2]
        self._stride = ring_bytes(shape, 1)
        self._offset = offset
        self._memory = mmap.mmap(-1, ring_bytes(shape, cells)) if memory is None else memory
        whole: NDArray[np.uint8] = np.frombuffer(
            self._memory, np.uint8, ring_bytes(shape, cells), offset
        ).reshape(cells, self._stride)
        self._all = whole[:, : self._size].reshape(cells, *shape, copy=False)
        self._base = whole.ctypes.data
        mine = range(first, cells if count is None else first + count)
        self._free = deque(mine)
        self._own = len(mine)
        self._freed = asyncio.Event()

    @property
    def free(self) -> int:
        """Cells that this process could take now."""
        return len(self._free)

    async def acquire(self) -> NDArray[np.uint8]:
        """A free cell as uint8 of ``shape``, to be written once; waits while all are held."""
        waited = False
        while not self._free:
            # Cleared before the wait and set by each return, with no await in between: no return is missed. All that
            # wait wake up and look again; they are as many as there are browsers.
            self._freed.clear()
            self.waits += not waited
            try:
                async with asyncio.timeout(_COMPLAIN_SECONDS):
                    await self._freed.wait()
            except TimeoutError:
                # What an error's traceback holds is let go by the collector only.
                gc.collect()
                if not waited:
                    log.warning("all %d frames of this process are held; the next one waits", self._own)
            waited = True
        return self._lend(self._free.popleft())

    def _lend(self, cell: int) -> NDArray[np.uint8]:
        # An array made straight from the mapping has no other array below it: whatever is derived from it, slices,
        # reshapes, tensors, holds this one. So its end is the end of all use of the cell.
        start = self._offset + cell * self._stride
        frame: NDArray[np.uint8] = np.frombuffer(self._memory, np.uint8, self._size, start)
        weakref.finalize(frame, _give_back, weakref.ref(self), cell, _running_loop()).atexit = False
        shaped: NDArray[np.uint8] = frame.reshape(self.shape)
        return shaped

    def _returned(self, cell: int) -> None:
        self._free.append(cell)
        self._freed.set()

    def cell_of(self, frame: NDArray[np.generic]) -> int | None:
        """The number of the cell that an array is, or None if it is none of this ring."""
        offset = int(frame.__array_interface__["data"][0]) - self._base
        cell, rest = divmod(offset, self._stride)
        same = frame.shape == self.shape and frame.dtype == np.uint8 and frame.flags.c_contiguous
        return int(cell) if same and rest == 0 and 0 <= cell < self.cells else None

    def read(self, cells: NDArray[np.int32]) -> NDArray[np.uint8]:
        """Frames of some cells as uint8 (len(cells), *shape); a single one is read in place, without a copy."""
        if len(cells) == 1:
            alone: NDArray[np.uint8] = self._all[int(cells[0])][None]
            return alone
        chosen: NDArray[np.uint8] = self._all[cells]
        return chosen

    def write(self, cell: int, frame: NDArray[np.generic]) -> None:
        """Copy a frame that was made elsewhere into a cell that no process takes from."""
        self._all[cell] = frame


def _give_back(ring: weakref.ref[FrameRing], cell: int, loop: asyncio.AbstractEventLoop | None) -> None:
    """The last array of a cell is gone, in whatever thread."""
    owner = ring()
    if owner is None:
        return
    if loop is not None and _running_loop() is not loop:
        # Whoever waits for a cell may only be woken in the loop's own thread.
        try:
            loop.call_soon_threadsafe(owner._returned, cell)
            return
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more
    owner._returned(cell)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def ring_bytes(shape: tuple[int, int, int], cells: int) -> int:
    """Bytes that so many cells take."""
    size = shape[0] * shape[1] * shape[2]
    return -(-size // _ALIGNMENT) * _ALIGNMENT * cells
