"""Popups: one that an action opens is followed, others are closed; all are gone with the episode."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from playing import Deal, PageTask, act, allowed

from webgym.schema import Action, ActionKind, Schema
from webgym_workers.browser.chromium import BrowserOptions, ChromiumProcess
from webgym_workers.browser.page import Page
from webgym_workers.browser.pool import BrowserPool
from webgym_workers.browser.popups import MAX_POPUPS
from webgym_workers.episode import Episode, init_scripts
from webgym_workers.frames.display import display_obstacle
from webgym_workers.frames.ring import FrameRing
from webgym_workers.frames.source import open_frames

pytestmark = pytest.mark.asyncio(loop_scope="session")

BUDGET = 5.0


async def open_tabs(process: ChromiumProcess, page: Page, count: int) -> None:
    """Wait until the page has so many tabs."""
    async with asyncio.timeout(10):
        while True:
            infos = (await process.client.browser.call("Target.getTargets"))["targetInfos"]
            tabs = [i for i in infos if i["type"] == "page" and i.get("browserContextId") == page.context]
            if len(tabs) == count:
                return
            await asyncio.sleep(0.02)


async def begin(deal: Deal, site: str) -> Episode:
    return await deal(f"{site}/popups.html", 'Go "there"', budget=BUDGET)


@pytest.mark.parametrize("name", ["tab", "window", "later", "dialogs"])
async def test_a_popup_that_a_click_opens_is_followed(
    process: ChromiumProcess, deal: Deal, site: str, name: str
) -> None:
    episode = await begin(deal, site)
    page, before = episode.page, len(episode.page.popups)
    step = await act(episode, ActionKind.CLICK, name)
    assert (step.invalid, step.settled, page.depth) == (None, True, 1)
    assert [(p.url, p.followed) for p in page.popups[before:]] == [(f"{site}/popup.html?{name}", True)]
    # It has the size of the page, and what it did before it could be seen was noted.
    assert await page.evaluate("[innerWidth, innerHeight]") == list(page.viewport)
    assert {"early", "close me"} <= allowed(step.view, ActionKind.CLICK)
    await act(episode, ActionKind.CLICK, "early")
    assert await page.evaluate("document.title") == "clicked"
    step = await act(episode, ActionKind.BACK)
    assert (step.invalid, page.depth) == (None, 0)
    assert name in allowed(step.view, ActionKind.CLICK)
    assert allowed(step.view, ActionKind.BACK) == set()
    await open_tabs(process, page, 1)


async def test_back_goes_through_the_history_of_a_popup_first(deal: Deal, site: str) -> None:
    episode = await begin(deal, site)
    await act(episode, ActionKind.CLICK, "tab")
    step = await act(episode, ActionKind.CLICK, "on")
    assert [n.text for n in step.view.nodes] == ["second page"]
    step = await act(episode, ActionKind.BACK)
    assert episode.page.depth == 1
    assert "early" in allowed(step.view, ActionKind.CLICK)
    step = await act(episode, ActionKind.BACK)
    assert episode.page.depth == 0
    assert "tab" in allowed(step.view, ActionKind.CLICK)


@pytest.mark.parametrize(("opens", "closes"), [("window", "tell and close"), ("written", "close me")])
async def test_a_popup_that_closes_leads_back_to_its_opener(
    deal: Deal, site: str, opens: str, closes: str
) -> None:
    episode = await begin(deal, site)
    await act(episode, ActionKind.CLICK, opens)
    assert episode.page.depth == 1
    step = await act(episode, ActionKind.CLICK, closes)
    assert (step.invalid, step.settled, episode.page.depth) == (None, True, 0)
    assert opens in allowed(step.view, ActionKind.CLICK)
    assert await episode.page.evaluate("told.textContent") == ("told" if opens == "window" else "")


async def test_popups_of_popups(process: ChromiumProcess, deal: Deal, site: str) -> None:
    episode = await begin(deal, site)
    await act(episode, ActionKind.CLICK, "window")
    step = await act(episode, ActionKind.CLICK, "nested")
    assert (episode.page.depth, step.view.observation["goal"][8]) == (2, 0)
    step = await act(episode, ActionKind.CLICK, "close opener")
    # The middle one is gone; what is left is still there to act on.
    assert "early" in allowed(step.view, ActionKind.CLICK)
    await episode.reset(1)
    assert episode.page.depth == 0
    assert "tab" in allowed(episode.view, ActionKind.CLICK)
    await open_tabs(process, episode.page, 1)


async def test_what_a_popup_has_under_way_is_waited_for(deal: Deal, site: str) -> None:
    episode = await begin(deal, site)
    await act(episode, ActionKind.CLICK, "window")
    # Told by mutations of the document that came in the place of the first blank one.
    assert not await episode.page.wait_for_change(0.1)
    await episode.page.evaluate("void setTimeout(() => { document.title = 'changed'; }, 500)")
    assert await episode.page.wait_for_change(BUDGET)
    assert await episode.page.evaluate("document.title") == "changed"


async def test_a_popup_that_a_choice_opens(deal: Deal, site: str) -> None:
    episode = await begin(deal, site)
    await act(episode, ActionKind.SELECT_OPTION, "jump", "there")
    assert episode.page.depth == 1


async def test_no_more_popups_than_a_page_may_have(process: ChromiumProcess, deal: Deal, site: str) -> None:
    episode = await begin(deal, site)
    page, before = episode.page, len(episode.page.popups)
    await act(episode, ActionKind.CLICK, "many")
    assert page.depth == MAX_POPUPS
    assert [p.followed for p in page.popups[before:]] == [True] * MAX_POPUPS + [False] * (7 - MAX_POPUPS)
    await open_tabs(process, page, 1 + MAX_POPUPS)
    await episode.reset(1)
    await open_tabs(process, page, 1)


async def test_popups_that_nobody_asked_for_are_closed(
    process: ChromiumProcess, page: Page, site: str
) -> None:
    await page.navigate(f"{site}/popups.html")
    await page.settle()
    await page.evaluate("void open('popup.html?ad')")
    assert (await page.evaluate_settled("document.title")).value == "opener"
    assert [(p.url, p.followed) for p in page.popups] == [(f"{site}/popup.html?ad", False)]
    await open_tabs(process, page, 1)
    # The page still has the focus, and acts.
    await page.click(20, 20)
    assert (await page.evaluate_settled("document.title", BUDGET)).value == "popup"
    await page.close()
    await open_tabs(process, page, 0)


async def test_frames_of_a_popup_come_by_screenshot(chromium: object, site: str) -> None:
    if display_obstacle():
        pytest.skip("no Xvfb")
    async with BrowserPool(BrowserOptions(display="Require"), 1) as pool, pool.browser(0) as browser:
        task = PageTask(f"{site}/popups.html", "")
        page = await browser.new_page(scripts=init_scripts(task))
        schema = Schema(frame=(64, 64, 3))
        frames = await open_frames(browser, page, FrameRing((64, 64, 3), 4))
        episode = Episode(page, task, schema, frames=frames, settle_budget=BUDGET)
        first = (await episode.reset(0)).observation["frame"].copy()
        for name in ("tab", "window"):
            step = await act(episode, ActionKind.CLICK, name)
            assert (page.depth, frames.way) == (1, "screenshot")
            popup = step.view.observation["frame"].copy()
            assert popup.mean() > 200
            assert np.abs(popup.astype(int) - first).max() > 50
            # The page itself is in front again, and soon on the screen.
            step = await act(episode, ActionKind.BACK)
            async with asyncio.timeout(20):
                while frames.way != "shared-memory":
                    step = await episode.step(Action(ActionKind.BACK))
            assert page.depth == 0
            assert np.abs(step.view.observation["frame"].astype(int) - first).mean() < 5
