"""Turns to load a page."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from webgym_workers.browser import admission as module
from webgym_workers.browser.admission import Admission, next_limit


@pytest.mark.parametrize(
    ("limit", "idle", "expected"),
    [(3, 0.5, 4), (9, 0.09, 10), (9, 0.05, 9), (9, 0.0, 8), (4, 0.0, 3), (3, 0.0, 3), (3, 0.019, 3)],
)
def test_idle_cores_let_one_more_in_and_full_ones_one_less(limit: int, idle: float, expected: int) -> None:
    assert next_limit(limit, 3, idle) == expected


class Crowd:
    """Pages that load until they are told not to."""

    def __init__(self, admission: Admission, count: int) -> None:
        self.admission = admission
        self.begun: list[int] = []
        self.ends = [asyncio.Event() for _ in range(count)]
        self.tasks = [asyncio.create_task(self._load(index)) for index in range(count)]

    async def _load(self, index: int) -> None:
        async with self.admission.turn():
            self.begun.append(index)
            await self.ends[index].wait()

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_on_full_cores_pages_load_one_after_the_other_in_their_order() -> None:
    crowd = Crowd(Admission(2, lambda: 0.0), 6)
    await turns()
    assert crowd.begun == [0, 1]
    assert crowd.admission.waiting == 4
    crowd.ends[1].set()
    await turns()
    assert crowd.begun == [0, 1, 2]
    for end in crowd.ends:
        end.set()
    await asyncio.gather(*crowd.tasks)
    assert crowd.begun == [0, 1, 2, 3, 4, 5]
    assert (crowd.admission.loading, crowd.admission.waiting) == (0, 0)


async def test_idle_cores_let_all_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    crowd = Crowd(Admission(2, lambda: 0.9), 8)
    async with asyncio.timeout(10):
        while len(crowd.begun) < 8:
            await asyncio.sleep(0.001)
    assert crowd.admission.limit >= 8
    await crowd.stop()
    assert crowd.admission.loading == 0


async def test_a_limit_that_was_right_once_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    idle = 0.9
    admission = Admission(2, lambda: idle)
    crowd = Crowd(admission, 8)
    async with asyncio.timeout(10):
        while len(crowd.begun) < 8:
            await asyncio.sleep(0.001)
    await crowd.stop()
    idle = 0.0
    admission.limit = 3
    again = Crowd(admission, 8)
    async with asyncio.timeout(10):
        while admission.limit > 2:
            await asyncio.sleep(0.001)
    await again.stop()


async def test_who_gives_up_leaves_its_place_to_the_next() -> None:
    crowd = Crowd(Admission(1, lambda: 0.0), 4)
    await turns()
    crowd.tasks[1].cancel()
    await turns()
    crowd.ends[0].set()
    await turns()
    assert crowd.begun == [0, 2]
    crowd.tasks[2].cancel()
    await turns()
    assert crowd.begun == [0, 2, 3]
    await crowd.stop()
    assert (crowd.admission.loading, crowd.admission.waiting) == (0, 0)


async def test_a_turn_given_to_one_that_gives_up_in_the_same_moment_goes_on_to_the_next() -> None:
    crowd = Crowd(Admission(1, lambda: 0.0), 3)
    await turns()
    crowd.tasks[0].cancel()
    # The first one's end hands its turn to the second in this very turn of the loop.
    asyncio.get_running_loop().call_soon(crowd.tasks[1].cancel)
    await turns()
    assert crowd.begun == [0, 2]
    await crowd.stop()
    assert crowd.admission.loading == 0


async def test_a_page_that_fails_gives_its_turn_back() -> None:
    admission = Admission(1, lambda: 0.0)
    with contextlib.suppress(RuntimeError):
        async with admission.turn():
            raise RuntimeError
    async with asyncio.timeout(5), admission.turn():
        assert admission.loading == 1
