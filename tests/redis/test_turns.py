"""Turns of browsers and learner: who waits for whom, and what becomes of a turn when either is killed in it."""

from __future__ import annotations

import asyncio

import pytest
import redis
import redis.asyncio

from webgym.keys import Keys
from webgym.turns import LearnerTurns, WorkerTurns

SOON = 10.0
NOW = 0.02


@pytest.fixture
def learner(client: redis.Redis, keys: Keys) -> LearnerTurns:
    return LearnerTurns(client, keys)


async def test_they_take_turns(aclient: redis.asyncio.Redis, keys: Keys, learner: LearnerTurns) -> None:
    worker = WorkerTurns(aclient, keys, "w.0", 1, 1)
    assert learner.wait(NOW) is None
    for version in (1, 2, 3):
        waiting = asyncio.ensure_future(worker.next())
        assert await asyncio.to_thread(learner.wait, SOON) == 1
        assert not waiting.done()
        learner.grant(version)
        assert await asyncio.wait_for(waiting, SOON) == version
        assert learner.wait(NOW) is None


async def test_the_learner_waits_for_all_browser_processes_of_the_worker(
    aclient: redis.asyncio.Redis, keys: Keys, learner: LearnerTurns
) -> None:
    first, second = (WorkerTurns(aclient, keys, f"w.{i}", n, 5) for i, n in ((0, 3), (3, 2)))
    waiting = [asyncio.ensure_future(first.next())]
    assert await asyncio.to_thread(learner.wait, 0.3) is None
    waiting.append(asyncio.ensure_future(second.next()))
    assert await asyncio.to_thread(learner.wait, SOON) == 5
    learner.grant(7)
    assert await asyncio.wait_for(asyncio.gather(*waiting), SOON) == [7, 7]


async def test_a_learner_that_is_killed_while_it_learns_leaves_the_turn_to_its_successor(
    aclient: redis.asyncio.Redis, client: redis.Redis, keys: Keys, learner: LearnerTurns
) -> None:
    waiting = asyncio.ensure_future(WorkerTurns(aclient, keys, "w.0", 1, 1).next())
    assert await asyncio.to_thread(learner.wait, SOON) == 1
    successor = LearnerTurns(client, keys)
    assert successor.wait(NOW) == 1
    successor.grant(4)
    assert await asyncio.wait_for(waiting, SOON) == 4


async def test_a_browser_process_that_is_killed_reports_anew(
    aclient: redis.asyncio.Redis, keys: Keys, learner: LearnerTurns
) -> None:
    waiting = asyncio.ensure_future(WorkerTurns(aclient, keys, "w.0", 1, 1).next())
    assert await asyncio.to_thread(learner.wait, SOON) == 1
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    learner.grant(1)
    # What its predecessor was granted is not for its successor, whose browsers have yet to show that they are there.
    waiting = asyncio.ensure_future(WorkerTurns(aclient, keys, "w.0", 1, 1).next())
    assert await asyncio.to_thread(learner.wait, SOON) == 1
    assert not waiting.done()
    learner.grant(2)
    assert await asyncio.wait_for(waiting, SOON) == 2


async def test_once_open_nobody_waits_until_a_learner_closes_again(
    aclient: redis.asyncio.Redis, keys: Keys, learner: LearnerTurns
) -> None:
    worker = WorkerTurns(aclient, keys, "w.0", 1, 1)
    waiting = asyncio.ensure_future(worker.next())
    assert await asyncio.to_thread(learner.wait, SOON) == 1
    learner.open()
    assert await asyncio.wait_for(waiting, SOON) is None
    assert await asyncio.wait_for(worker.next(), SOON) is None
    learner.close()
    waiting = asyncio.ensure_future(worker.next())
    assert await asyncio.to_thread(learner.wait, SOON) == 1
    learner.grant(9)
    assert await asyncio.wait_for(waiting, SOON) == 9


async def test_a_cancellation_is_never_lost_however_it_falls(aclient: redis.asyncio.Redis) -> None:
    """Just after a command was sent, it used to be: the task went on to wait for ever."""
    for i in range(300):
        keys = Keys(f"cancelled-{i}")
        waiting = asyncio.ensure_future(WorkerTurns(aclient, keys, "w.0", 1, 1).next())
        # So many turns of the loop, that is at another place each time.
        for _ in range(i % 30):
            await asyncio.sleep(0)
        waiting.cancel()
        _, lost = await asyncio.wait([waiting], timeout=SOON)
        assert not lost
        assert waiting.cancelled()
