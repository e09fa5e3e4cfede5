"""Browsers that are silent, on machines that have cores left and on such that have not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from webgym_workers.browser.faults import BrowserGone, CDPTimeout
from webgym_workers.browser.liveness import CROWDED, answers


def silent(
    times: int, then: BaseException | None = None
) -> tuple[Callable[[float], Awaitable[None]], list[float]]:
    """Does not answer a number of times; and the deadlines that it was asked with."""
    asked: list[float] = []

    async def ask(timeout: float) -> None:
        asked.append(timeout)
        if len(asked) <= times:
            raise CDPTimeout("Browser.getVersion", timeout)
        if then is not None:
            raise then

    return ask, asked


async def test_one_that_answers_costs_no_look_at_the_cores() -> None:
    ask, asked = silent(0)
    assert await answers(ask, 5.0, lambda: pytest.fail("looked"))
    assert asked == [2.5]


async def test_with_cores_to_spare_a_browser_that_is_silent_hangs() -> None:
    ask, asked = silent(99)
    assert not await answers(ask, 5.0, lambda: 0.5)
    assert sum(asked) == 5.0


async def test_where_the_cores_cannot_be_told_it_hangs_as_soon() -> None:
    ask, asked = silent(99)
    assert not await answers(ask, 5.0, lambda: None)
    assert sum(asked) == 5.0


async def test_on_full_cores_it_is_waited_for_longer_but_not_without_end() -> None:
    ask, asked = silent(5)
    assert await answers(ask, 5.0, lambda: 0.0)
    assert len(asked) == 6
    ask, asked = silent(99)
    assert not await answers(ask, 5.0, lambda: 0.01)
    assert sum(asked) == CROWDED * 5.0


async def test_one_that_has_ended_says_so() -> None:
    ask, _ = silent(1, BrowserGone("it ended"))
    with pytest.raises(BrowserGone):
        await answers(ask, 5.0, lambda: 0.0)
