"""The clock of a simulator's page jumps over what the page waits for; what runs, and in which order, stays the same."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from webgym_workers.browser.page import Page
from webgym_workers.browser.settle import SKIP_WAITS

pytestmark = pytest.mark.asyncio(loop_scope="session")

_LOG = """
const log = [];
const started = Date.now(), from = performance.now();
const note = (name) => log.push([name, Date.now() - started, performance.now() - from]);
"""


@asynccontextmanager
async def _skipping(page: Page, site: str) -> AsyncIterator[None]:
    """The page at a local document that skips its waits."""
    id = await page.add_script(SKIP_WAITS)
    try:
        await page.navigate(f"{site}/unrest.html")
        yield
    finally:
        await page.remove_script(id)


async def _run(page: Page, site: str, script: str, budget: float = 2.0) -> tuple[list[Any], float]:
    """The log of a script on a page that skips waits, and the seconds until it came to rest."""
    async with _skipping(page, site):
        await page.settle()
        start = time.perf_counter()
        await page.evaluate(f"void (() => {{ {_LOG} globalThis.log = log; {script} }})()")
        read = await page.evaluate_settled("JSON.stringify(log)", budget)
        return json.loads(read.value), time.perf_counter() - start


async def test_timers_fire_at_once_in_their_order_and_at_their_time(page: Page, site: str) -> None:
    log, seconds = await _run(
        page,
        site,
        """
        let ticks = 0;
        setTimeout(() => { note('a'); document.body.append('a'); }, 300);
        setTimeout(() => { note('b'); setTimeout(() => { note('c'); document.body.append('c'); }, 60); }, 120);
        const cleared = setTimeout(() => note('never'), 90);
        clearTimeout(cleared);
        const interval = setInterval(() => {
          note('tick'); document.body.append('.'); if (++ticks === 3) clearInterval(interval);
        }, 50);
        """,
    )
    assert [entry[0] for entry in log] == ["tick", "tick", "b", "tick", "c", "a"]
    for (_, by_date, by_clock), at in zip(log, (50, 100, 120, 150, 180, 300), strict=True):
        assert at - 2 <= by_clock <= at + 60
        assert abs(by_date - by_clock) <= 3
    assert seconds < 0.25


async def test_a_timer_that_is_not_waited_for_fires_when_the_clock_has_passed_it(
    page: Page, site: str
) -> None:
    log, _ = await _run(
        page,
        site,
        """
        setTimeout(() => note('long'), 900);
        let n = 0;
        const tick = () => { document.body.append('.'); if (++n < 25) setTimeout(tick, 50); else note('end'); };
        setTimeout(tick, 50);
        """,
    )
    assert [entry[0] for entry in log] == ["long", "end"]
    assert 898 <= log[0][2] <= 980


async def test_frames_and_animations_come_to_their_end(page: Page, site: str) -> None:
    log, seconds = await _run(
        page,
        site,
        """
        const box = document.createElement('div');
        box.style.cssText = 'position:absolute;left:0;width:9px;height:9px;transition:left 700ms linear';
        document.body.append(box);
        box.offsetLeft;
        box.addEventListener('transitionend', () => note('transition'));
        box.style.left = '70px';
        let first = null;
        requestAnimationFrame(function step(t) {
          first ??= t;
          box.style.top = `${t - first}px`;
          if (t - first < 500) requestAnimationFrame(step); else note('frames');
        });
        """,
    )
    assert sorted(entry[0] for entry in log) == ["frames", "transition"]
    assert await page.evaluate("document.querySelector('body > div:last-of-type').offsetLeft") == 70
    assert seconds < 0.5


async def test_a_fault_in_a_timer_stops_nothing(page: Page, site: str) -> None:
    log, _ = await _run(
        page,
        site,
        """
        addEventListener('error', (e) => note(e.message));
        setTimeout(() => { document.body.append('x'); throw new Error('once'); }, 100);
        setTimeout(() => note('after'), 200);
        """,
    )
    assert [entry[0] for entry in log] == ["Uncaught Error: once", "after"]


@pytest.mark.parametrize("kind", ["frames", "timers", "poll", "idle", "spinner"])
async def test_what_never_ends_is_bounded_by_the_page_clock(page: Page, site: str, kind: str) -> None:
    async with _skipping(page, site):
        await page.evaluate(f"void endless.{kind}()")
        start = time.perf_counter()
        for _ in range(4):
            await page.evaluate_settled("1", 1.0)
        assert time.perf_counter() - start < 3
        assert (await page.evaluate_settled("1", 1.0)).settled


async def test_waiting_for_a_change_takes_none_of_our_time(page: Page, site: str) -> None:
    async with _skipping(page, site):
        await page.settle()
        start = time.perf_counter()
        assert not await page.wait_for_change(1.0)
        await page.evaluate("void setTimeout(() => document.body.append('late'), 800)")
        assert await page.wait_for_change(1.0)
        await page.evaluate("void setTimeout(() => document.body.append('too late'), 1800)")
        assert not await page.wait_for_change(1.0)
        assert await page.wait_for_change(1.0)
        assert time.perf_counter() - start < 1.0


async def test_dates_are_dates(page: Page, site: str) -> None:
    async with _skipping(page, site):
        checks = """[
          new Date() instanceof Date, new Date(0).getTime() === 0, typeof Date() === 'string',
          new Date(2020, 1, 3).getMonth() === 1, Date.UTC(1970, 0, 1) === 0, new Date().constructor === Date,
          class extends Date {}.name === '' && new (class extends Date {})(5).getTime() === 5,
          Math.abs(new Date() - Date.now()) < 50, Number.isInteger(Date.now())]"""
        assert all(await page.evaluate(checks))
