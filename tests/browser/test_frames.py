"""Frames from the screen show the page as it was read, all of it and nothing else, and never two halves of two."""

from __future__ import annotations

import asyncio
import io
import shutil
from collections.abc import AsyncIterator
from typing import NamedTuple

import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray
from PIL import Image

from webgym_workers.browser.faults import DisplayGone
from webgym_workers.browser.options import BrowserOptions
from webgym_workers.browser.page import Page
from webgym_workers.browser.pool import BrowserPool
from webgym_workers.browser.slot import Browser
from webgym_workers.frames import screen
from webgym_workers.frames.calibration import PageArea
from webgym_workers.frames.display import Display
from webgym_workers.frames.resize import squeeze
from webgym_workers.frames.ring import FrameRing
from webgym_workers.frames.screen import ScreenFrames
from webgym_workers.frames.screenshot import ScreenshotFrames
from webgym_workers.frames.source import open_frames

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(shutil.which("Xvfb") is None, reason="no Xvfb"),
]

SHAPE = (224, 224, 3)
RED, BLUE = (255, 0, 0), (0, 0, 255)


class Shown(NamedTuple):
    page: Page
    frames: ScreenFrames

    async def take(self, expression: str = "null") -> NDArray[np.uint8]:
        read = await self.page.evaluate_settled(f"({expression}, {self.frames.mark()})")
        return await self.frames.take(read.value)


async def show(browser: Browser, width: int, height: int) -> Shown:
    page = await browser.new_page(width=width, height=height)
    frames = await open_frames(browser, page, FrameRing(SHAPE, 4))
    assert isinstance(frames, ScreenFrames)
    return Shown(page, frames)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser(chromium: object) -> AsyncIterator[Browser]:
    async with BrowserPool(BrowserOptions(display="Require"), 1) as pool, pool.browser(0) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def shown(browser: Browser, pages: str) -> AsyncIterator[Shown]:
    shown = await show(browser, 1280, 720)
    await shown.page.navigate(f"{pages}/canvas.html")
    yield shown
    await browser.close_page(shown.page)


def colors(frame: NDArray[np.uint8]) -> set[tuple[int, ...]]:
    return {tuple(map(int, color)) for color in np.unique(frame.reshape(-1, 3), axis=0)}


async def test_a_frame_shows_what_was_just_done_and_nothing_of_our_own(shown: Shown) -> None:
    for turn in range(40):
        color = (turn * 6, 255 - turn * 6, (turn * 37) % 256)
        frame = await shown.take(f"paint('rgb({color[0]} {color[1]} {color[2]})')")
        assert frame.shape == SHAPE
        assert colors(frame) == {color}
    assert shown.frames.counters.misses == 0


async def test_it_is_the_picture_that_a_screenshot_shows(shown: Shown, pages: str) -> None:
    await shown.page.navigate(f"{pages}/controls.html")
    frame = await shown.take()
    image = Image.open(io.BytesIO(await shown.page.screenshot())).convert("RGB")
    whole = squeeze(np.asarray(image), SHAPE[:2])
    # But for the corner, where the screenshot shows our mark.
    assert np.abs(whole.astype(int) - frame.astype(int))[:-3, :-3].max() <= 2


@pytest.mark.parametrize("factor", [1.0, 1.5, 2.0])
async def test_the_page_is_found_at_each_scale(chromium: object, pages: str, factor: float) -> None:
    options = BrowserOptions(display="Require", device_scale_factor=factor)
    async with BrowserPool(options, 1) as pool, pool.browser(0) as browser:
        for size in ((1920, 1080), (801, 603), (160, 210)):
            shown = await show(browser, *size)
            area = shown.frames.area
            assert abs(area.width - size[0] * factor) < 1
            assert abs(area.height - size[1] * factor) < 1
            assert area.x == 0
            assert area.y > 0
            await shown.page.navigate(f"{pages}/canvas.html")
            await shown.take("mark()")
            assert await shown.page.evaluate("[innerWidth, innerHeight, devicePixelRatio]") == [*size, factor]
            # To the pixel: inside and outside of each square's border.
            width, height = size
            rgb = shown.frames.display.framebuffer.rgb
            for x, y, color in ((0, 0, RED), (width - 40, 0, (0, 255, 0)), (0, height - 40, BLUE)):
                for dx, dy in ((1, 1), (38, 38), (1, 38), (38, 1)):
                    assert rgb(*area.at(x + dx, y + dy)) == color
                outside = (x + 41.5 if x == 0 else x - 1.5, y + 20)
                assert rgb(*area.at(*outside)) == (10, 20, 30)
            assert rgb(*area.at(width / 2, height / 2)) == (255, 255, 0)
            await browser.close_page(shown.page)


@pytest.mark.parametrize("held", [False, True])
async def test_a_page_that_repaints_all_the_time_is_never_torn(
    shown: Shown, pages: str, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never() -> None:
        return None

    if held:
        monkeypatch.setattr(shown.frames.display, "still", never)
    await shown.page.navigate(f"{pages}/restless.html")
    await shown.take()
    frame = np.empty(SHAPE, np.uint8)
    seen = set()
    for turn in range(60):
        await shown.frames.shoot(frame)
        found = colors(frame)
        assert len(found) == 1, f"frame {turn} holds {found}"
        seen |= found
        # Not in step with the page's own frames.
        await asyncio.sleep(0.001 * (turn % 7))
    assert seen == {RED, BLUE}
    counters = shown.frames.counters
    assert counters.copies + counters.retries > 0
    if held:
        assert counters.copies == counters.frames


async def test_drawing_is_seen_while_a_frame_is_made(shown: Shown) -> None:
    display, area = shown.frames.display, shown.frames.area
    display.watch(area.x, area.y, area.width, area.height)
    # What the page was drawing anyway comes to an end.
    async with asyncio.timeout(10):
        while True:
            before = await display.still()
            if not await display.drawn(0.1) and display.serial == before:
                break
            display.watch(area.x, area.y, area.width, area.height)
    await shown.take("paint('#abcdef')")
    display.watch(area.x, area.y, area.width, area.height)
    before = await display.still()
    await shown.page.evaluate("paint('#fedcba')")
    async with asyncio.timeout(2):
        while display.serial == before:
            await asyncio.sleep(0.005)
            await display.sync()
    assert await display.drawn(0)


async def test_nothing_is_drawn_while_the_display_is_held(shown: Shown, pages: str) -> None:
    await shown.page.navigate(f"{pages}/restless.html")
    display, area = shown.frames.display, shown.frames.area
    async with display.held():
        before = display.framebuffer.rgb(*area.at(600, 300))
        for _ in range(20):
            await asyncio.sleep(0.005)
            assert display.framebuffer.rgb(*area.at(600, 300)) == before
    display.watch(area.x, area.y, area.width, area.height)
    assert await display.drawn(2.0)


async def test_a_new_page_is_waited_for(shown: Shown, pages: str) -> None:
    for _ in range(3):
        await shown.page.navigate(f"{pages}/canvas.html")
        assert colors(await shown.take()) == {(10, 20, 30)}
        await shown.page.navigate("data:text/html,<body style='margin:0;background:rgb(99 88 77)'>")
        assert colors(await shown.take()) == {(99, 88, 77)}


async def test_a_veil_over_the_mark_does_not_hide_it_and_a_cover_costs_a_bounded_wait(shown: Shown) -> None:
    await shown.take("box.showModal()")
    assert shown.frames.counters.misses == 0
    await shown.take("(box.close(), box.className = 'opaque', box.showModal())")
    start = asyncio.get_running_loop().time()
    for turn in range(1, 5):
        frame = await shown.take(f"(box.style.background = 'rgb(200 {turn} 0)')")
        # Nothing tells when a page that covers its mark is drawn: on a busy machine it may be the picture before.
        assert tuple(frame[112, 112]) in {(200, turn, 0), (200, turn - 1, 0)}
        assert tuple(frame[5, 5]) == (0x12, 0x34, 0x56)
    assert shown.frames.counters.misses > 0
    assert asyncio.get_running_loop().time() - start < 3
    await shown.take("box.close()")
    misses = shown.frames.counters.misses
    assert colors(await shown.take("paint('#040506')")) == {(4, 5, 6)}
    assert shown.frames.counters.misses == misses


async def test_a_page_that_covers_its_mark_and_never_rests_is_cut_off(shown: Shown, pages: str) -> None:
    await shown.page.navigate(f"{pages}/restless.html")
    await shown.page.evaluate(
        "(all.popover = 'manual', all.style.cssText += ';width:100vw;height:100vh;border:0',"
        " globalThis.cover = () => { all.hidePopover(); all.showPopover(); })"
    )
    async with asyncio.timeout(20):
        for _ in range(4):
            # On top of the mark again, after the mark was painted.
            read = await shown.page.evaluate(f"(({shown.frames.mark()}), cover(), true)")
            assert len(colors(await shown.frames.take(read))) == 1
    assert shown.frames.counters.misses > 0


async def test_what_is_no_page_of_html_is_shown_too(shown: Shown, pages: str) -> None:
    await shown.page.navigate(f"{pages}/picture.svg")
    frame = await shown.take()
    assert tuple(frame[100, 100]) == (0x20, 0x40, 0xA0)


async def test_a_page_that_wipes_itself_is_marked_again(shown: Shown) -> None:
    for turn in range(3):
        frame = await shown.take(
            "(document.documentElement.innerHTML = '<body style=\"background: rgb(1 2 3)\"></body>')"
        )
        assert tuple(frame[50, 50]) == (1, 2, 3), turn
    assert shown.frames.counters.misses == 0


async def test_the_page_sees_nothing_of_the_mark_change(shown: Shown) -> None:
    await shown.take()
    await shown.page.evaluate(
        "(globalThis.seen = 0, new MutationObserver((all) => { seen += all.length; }).observe(document,"
        " {subtree: true, childList: true, attributes: true, characterData: true}))"
    )
    for _ in range(5):
        await shown.take()
    assert await shown.page.evaluate("seen") == 0


async def test_pages_of_one_browser_come_one_after_the_other_each_in_front(
    browser: Browser, pages: str
) -> None:
    first = await show(browser, 640, 480)
    await first.page.navigate(f"{pages}/canvas.html")
    await first.take("paint('#111111')")
    second = await show(browser, 900, 700)
    await second.page.navigate(f"{pages}/canvas.html")
    assert colors(await second.take("paint('#222222')")) == {(0x22, 0x22, 0x22)}
    await browser.close_page(first.page)
    assert colors(await second.take("paint('#333333')")) == {(0x33, 0x33, 0x33)}
    await browser.close_page(second.page)


async def test_a_black_display_is_told_from_a_black_page(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    assert colors(await shown.take("paint('#000')")) == {(0, 0, 0)}
    # The same page, looked for on a display that nobody draws on.
    idle = await Display.start(1300, 800, shown.frames.display._auth.with_name("other"))
    try:
        frames = ScreenFrames(shown.page, idle, PageArea(0, 50, 1280, 720, 1.0), FrameRing(SHAPE, 4))
        monkeypatch.setattr(screen, "FENCE_SECONDS", 0.1)
        frames._patience = 0.1
        read = await shown.page.evaluate(frames.mark())
        with pytest.raises(DisplayGone, match="black"):
            await frames.take(read)
    finally:
        await idle.stop()


async def test_without_a_display_frames_come_by_screenshot(chromium: object, pages: str) -> None:
    async with BrowserPool(BrowserOptions(), 1) as pool, pool.browser(0) as browser:
        page = await browser.new_page(width=1280, height=720)
        ring = FrameRing(SHAPE, 4)
        frames = await open_frames(browser, page, ring)
        assert isinstance(frames, ScreenshotFrames)
        assert frames.way == "screenshot"
        await page.navigate(f"{pages}/canvas.html")
        for turn in range(3):
            read = await page.evaluate_settled(f"(paint('rgb({turn} 90 200)'), {frames.mark()})")
            frame = await frames.take(read.value)
            assert ring.cell_of(frame) is not None
            assert np.abs(frame.astype(int) - (turn, 90, 200)).max() <= 3
            del frame
        # All cells can be had again, also the last, which the thread that wrote it may still be letting go.
        async with asyncio.timeout(2):
            assert len([await ring.acquire() for _ in range(4)]) == 4
