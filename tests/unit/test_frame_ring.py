"""Frames in the ring are good for as long as anybody holds them, and no cell is lost or lent twice."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Awaitable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webgym.errors import RunError
from webgym.schema import Schema
from webgym_workers.frames import ring as ring_module
from webgym_workers.frames.ring import CELLS_PER_BROWSER, FrameRing, ring_bytes
from webgym_workers.sharedmem import nameless_file
from webgym_workers.slots import ObservationSlots

SHAPE = (5, 7, 3)


async def soon(wait: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(wait, 2.0)


async def test_a_cell_is_free_again_when_the_last_array_of_it_is_gone() -> None:
    ring = FrameRing(SHAPE, 2)
    frame = await ring.acquire()
    assert frame.shape == SHAPE
    assert frame.dtype == np.uint8
    assert frame.flags.c_contiguous
    frame[...] = 9
    assert ring.free == 1
    part = frame[1:3, ::2, 0].T
    del frame
    assert ring.free == 1
    again = part[::-1]
    del part
    assert ring.free == 1
    assert set(again.flat) == {9}
    del again
    assert ring.free == 2


async def test_tensors_hold_their_cell() -> None:
    torch = pytest.importorskip("torch")
    ring = FrameRing(SHAPE, 1)
    tensor = torch.from_numpy(await ring.acquire()).permute(2, 0, 1)[None]
    assert ring.free == 0
    del tensor
    assert ring.free == 1


async def test_a_full_ring_makes_the_next_one_wait() -> None:
    ring = FrameRing(SHAPE, 2)
    held = [await ring.acquire(), await ring.acquire()]
    waiting = [asyncio.ensure_future(ring.acquire()) for _ in range(3)]
    await asyncio.sleep(0.02)
    assert not any(w.done() for w in waiting)
    assert ring.waits == 3
    waiting[0].cancel()
    held.clear()
    got = [await soon(waiting[1]), await soon(waiting[2])]
    assert ring.free == 0
    assert len({ring.cell_of(frame) for frame in got}) == 2


async def test_one_that_is_cancelled_while_it_is_woken_loses_no_cell() -> None:
    ring = FrameRing(SHAPE, 1)
    held: Any = await ring.acquire()
    waiting = [asyncio.ensure_future(ring.acquire()) for _ in range(2)]
    await asyncio.sleep(0)
    del held
    waiting[0].cancel()
    assert (await soon(waiting[1])).shape == SHAPE


async def test_a_cell_may_be_let_go_in_any_thread() -> None:
    ring = FrameRing(SHAPE, 1)
    holder = [await ring.acquire()]
    waiting = asyncio.ensure_future(ring.acquire())
    await asyncio.sleep(0)
    thread = threading.Thread(target=holder.clear)
    thread.start()
    await soon(waiting)
    thread.join()


async def test_what_only_a_cycle_holds_is_collected_before_the_wait_is_endless(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ring_module, "_COMPLAIN_SECONDS", 0.05)
    ring = FrameRing(SHAPE, 1)
    gc.disable()
    try:
        cycle: list[Any] = [await ring.acquire()]
        cycle.append(cycle)
        del cycle
        assert ring.free == 0
        await soon(ring.acquire())
    finally:
        gc.enable()
    assert "all 1 frames of this process are held" in caplog.text


def test_cells_come_back_also_where_no_loop_runs() -> None:
    ring = FrameRing(SHAPE, 1)
    frame = asyncio.run(ring.acquire())
    del frame
    with asyncio.Runner() as runner:
        held = runner.run(ring.acquire())
        del held  # between two calls, as an environment's user does
        assert runner.run(soon(ring.acquire())).shape == SHAPE


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=40), st.integers(1, 8))
def test_no_cell_is_lent_twice_and_none_is_lost(moves: list[int], cells: int) -> None:
    async def play() -> None:
        ring = FrameRing(SHAPE, cells + 2, first=1, count=cells)
        held: list[Any] = []
        for move in moves:
            if move < len(held):
                del held[move]
            elif ring.free:
                held.append(await ring.acquire())
                held[-1][...] = ring.cell_of(held[-1])
            numbers = [ring.cell_of(frame) for frame in held]
            assert len(set(numbers)) == len(held) == cells - ring.free
            assert all(number in range(1, cells + 1) for number in numbers)
            assert [int(frame.max()) for frame in held] == [int(frame.min()) for frame in held] == numbers

    asyncio.run(play())


async def test_only_whole_cells_are_recognised() -> None:
    ring = FrameRing(SHAPE, 3)
    frame = await ring.acquire()
    assert ring.cell_of(frame) == 0
    assert ring.cell_of(frame[:]) == 0
    for other in (
        frame[1:],
        frame[:, :, :2],
        frame.astype(np.uint8),
        np.zeros(SHAPE, np.uint8),
        frame.view(np.int8),
    ):
        assert ring.cell_of(other) is None


SCHEMA = Schema(nodes=3, texts=2, frame=SHAPE)


async def test_inference_reads_a_frame_where_it_was_made() -> None:
    fd = ObservationSlots.create(SCHEMA, 3)
    actors, inference = ObservationSlots(SCHEMA, 3, fd), ObservationSlots(SCHEMA, 3, fd)
    os.close(fd)
    ring = actors.frames(1, 2)
    assert ring is not None
    assert ring.free == 2 * CELLS_PER_BROWSER
    frames = [await ring.acquire() for _ in range(2)]
    for slot, frame in zip((1, 2), frames, strict=True):
        frame[...] = 10 * slot
        actors.write(slot, SCHEMA.empty() | {"frame": frame})
    batch = inference.read([2, 1])["frame"]
    assert [int(f[0, 0, 0]) for f in batch] == [20, 10]
    # Alone it is no copy: what is written to the cell shows.
    alone = inference.read([1])["frame"]
    frames[0][...] = 77
    assert (alone == 77).all()
    # One that was made elsewhere goes into the slot's own cell, and touches no other.
    actors.write(0, SCHEMA.empty() | {"frame": np.full(SHAPE, 5, np.uint8)})
    actors.write(1, SCHEMA.empty() | {"frame": np.full(SHAPE, 6, np.uint8)})
    assert [int(f[0, 0, 0]) for f in inference.read([0, 1, 2])["frame"]] == [5, 6, 20]
    assert (frames[0] == 77).all()


def test_processes_take_from_ranges_of_their_own() -> None:
    fd = ObservationSlots.create(SCHEMA, 5)
    one, other = ObservationSlots(SCHEMA, 5, fd).frames(0, 2), ObservationSlots(SCHEMA, 5, fd).frames(2, 3)
    os.close(fd)
    assert one is not None
    assert other is not None

    async def all_of(ring: FrameRing) -> set[int | None]:
        frames = [await ring.acquire() for _ in range(ring.free)]
        return {ring.cell_of(frame) for frame in frames}

    mine, theirs = asyncio.run(all_of(one)), asyncio.run(all_of(other))
    assert not mine & theirs
    assert len(mine | theirs) == 5 * CELLS_PER_BROWSER
    assert not (mine | theirs) & set(range(5))  # the slots' own


def test_memory_is_bounded_and_reserved_at_once() -> None:
    fd = ObservationSlots.create(SCHEMA, 4)
    status = os.fstat(fd)
    os.close(fd)
    least = ring_bytes(SHAPE, 4 * (1 + CELLS_PER_BROWSER))
    assert least <= status.st_size < least + 65536
    assert status.st_blocks * 512 >= status.st_size
    assert status.st_nlink == 0


def test_too_little_shared_memory_is_one_clear_error() -> None:
    with pytest.raises(
        RunError, match=r"cannot reserve .* MiB of shared memory in .* for the frames: .*maxBrowsers"
    ):
        nameless_file(1 << 55, "the frames")
