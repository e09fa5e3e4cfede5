"""When actors may step: all together, the slowest waited for, and nobody left waiting at the end."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from webgym.turns import WorkerTurns
from webgym_workers.pace import FreePace, TurnPace


class Learner:
    """Grants the next turn when told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers: asyncio.Queue[int | None] = asyncio.Queue()

    async def next(self) -> int | None:
        self.asked += 1
        return await self.answers.get()


def pace_of(learner: Learner, actors: int) -> TurnPace:
    return TurnPace(cast(WorkerTurns, learner), actors)


async def rest() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_at_a_free_pace_nobody_waits() -> None:
    pace = FreePace()
    assert await pace.turn() == 0
    assert not pace.takes_turns


async def test_all_step_together_once_the_last_has_arrived_and_the_learner_says_so() -> None:
    learner = Learner()
    pace = pace_of(learner, 3)
    waiting = [asyncio.ensure_future(pace.turn()) for _ in range(2)]
    await rest()
    assert learner.asked == 0
    waiting.append(asyncio.ensure_future(pace.turn()))
    await rest()
    assert learner.asked == 1
    assert not any(w.done() for w in waiting)
    learner.answers.put_nowait(5)
    assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [5, 5, 5]


async def test_no_actor_steps_twice_in_a_turn() -> None:
    learner = Learner()
    pace = pace_of(learner, 2)
    steps = [0, 0]

    async def act(index: int) -> None:
        while True:
            await pace.turn()
            steps[index] += 1
            for _ in range(index * 3):
                await asyncio.sleep(0)

    acting = [asyncio.ensure_future(act(i)) for i in range(2)]
    for turn in range(1, 6):
        learner.answers.put_nowait(turn)
        await rest()
        assert steps == [turn, turn]
    for task in acting:
        task.cancel()
    await asyncio.gather(*acting, return_exceptions=True)


@pytest.mark.parametrize("arrived", [1, 2])
async def test_who_is_let_go_does_not_wait_for_anybody(arrived: int) -> None:
    pace = pace_of(Learner(), 2)
    waiting = [asyncio.ensure_future(pace.turn()) for _ in range(arrived)]
    await rest()
    pace.free()
    assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [0] * arrived
    assert await pace.turn() == 0


async def test_a_learner_that_has_finished_lets_all_go() -> None:
    learner = Learner()
    pace = pace_of(learner, 2)
    learner.answers.put_nowait(None)
    assert await asyncio.wait_for(asyncio.gather(pace.turn(), pace.turn()), 5) == [0, 0]
    assert not pace.takes_turns
