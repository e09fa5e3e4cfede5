"""Blocking work at the end of a process's life."""

from __future__ import annotations

import asyncio
import threading

from webgym_workers.last_work import finish_aside


def test_it_is_done_beside_the_loop_and_on_it_when_no_thread_starts_any_more() -> None:
    done: list[tuple[int, int]] = []

    def work(number: int) -> None:
        done.append((number, threading.get_ident()))

    async def both() -> None:
        await finish_aside(work, 1)
        # As at the end of the interpreter: the loop's executor takes nothing any more.
        await asyncio.get_running_loop().shutdown_default_executor()
        await finish_aside(work, 2)

    asyncio.run(both())
    assert [number for number, _ in done] == [1, 2]
    assert done[0][1] != threading.get_ident() == done[1][1]
