"""Driving a page: input lands where it should, pages load or say why not."""

from __future__ import annotations

import struct

import pytest

from webgym_workers.browser.chromium import ChromiumProcess
from webgym_workers.browser.faults import CDPError, JavaScriptError, NavigationError
from webgym_workers.browser.page import Page

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(("scale", "point"), [(1.0, (137, 113)), (1.5, (140, 120)), (2.0, (101, 101))])
async def test_clicks_at_the_right_pixel(
    page: Page, pages: str, scale: float, point: tuple[int, int]
) -> None:
    await page.set_viewport(800, 600, scale)
    await page.navigate(f"{pages}/controls.html")
    await page.click(*point)
    seen = await page.evaluate("seen")
    assert seen == [[kind, *point, True] for kind in ("mousedown", "mouseup", "click")]


async def test_double_click_hover_and_scroll(page: Page, pages: str) -> None:
    await page.navigate(f"{pages}/controls.html")
    await page.click(120, 110, count=2)
    assert await page.evaluate("seen.map(e => e[0])") == [*["mousedown", "mouseup", "click"] * 2, "dblclick"]
    await page.evaluate("seen.length = 0")
    await page.hover(110, 210)
    assert await page.evaluate("seen") == [["enter"]]
    await page.scroll(0, 300, 400, 300)
    read = await page.evaluate_settled("[scrollY, scrolls > 0]")
    assert read.value == [300, True]


async def test_types_keys_and_other_text_in_order(page: Page, pages: str) -> None:
    await page.navigate(f"{pages}/controls.html")
    await page.click(110, 160)
    await page.type_text("aB 3!")
    assert await page.evaluate("keys.slice(0, 4)") == ["keydown:a", "keypress:a", "input:a", "keyup:a"]
    text = "naïve 東京 🙂 end"
    await page.press("Control+a")
    await page.type_text(text)
    assert await page.evaluate("field.value") == text
    await page.press("Backspace")
    await page.press("Home")
    await page.press("Delete")
    assert await page.evaluate("field.value") == text[1:-1]
    await page.press("Tab")
    assert await page.evaluate("document.activeElement === field") is False
    with pytest.raises(ValueError, match="no key 'Nonsense'"):
        await page.press("Nonsense")


async def test_evaluates_values_arguments_and_promises(page: Page) -> None:
    assert await page.evaluate("1 + 1") == 2
    assert await page.evaluate("(a, b) => a.x + b", {"x": "'\u2028"}, "é") == "'\u2028é"
    assert await page.evaluate("Promise.resolve({a: [1, null]})") == {"a": [1, None]}
    assert await page.evaluate("undefined") is None
    with pytest.raises(JavaScriptError, match="TypeError: no such thing"):
        await page.evaluate("(() => { throw new TypeError('no such thing') })()")
    with pytest.raises(JavaScriptError, match="refused"):
        await page.evaluate("Promise.reject('refused')")
    with pytest.raises(CDPError, match="wasn't found"):
        await page.session.call("No.suchMethod")


async def test_large_values_cross_the_pipe_whole(page: Page) -> None:
    size = 3_000_000
    text = await page.evaluate(f"'é'.repeat({size})")
    assert text == "é" * size
    assert await page.evaluate("(s) => s.length", "x" * size) == size


async def test_scripts_run_before_the_pages_own(page: Page, pages: str) -> None:
    script = await page.add_script("globalThis.mine = typeof seen")
    assert await page.evaluate("mine") == "undefined"
    await page.navigate(f"{pages}/controls.html")
    assert await page.evaluate("[mine, typeof seen]") == ["undefined", "object"]
    await page.remove_script(script)
    await page.navigate(f"{pages}/second.html")
    assert await page.evaluate("typeof mine") == "undefined"


async def test_pages_that_do_not_load_say_why(page: Page, site: str) -> None:
    for url, reason in {
        "http://127.0.0.1:1/": "net::ERR_",
        "file:///no/such/file": "net::ERR_FILE_NOT_FOUND",
        "not a url": "Cannot navigate to invalid URL",
    }.items():
        with pytest.raises(NavigationError) as failure:
            await page.navigate(url)
        assert reason in failure.value.reason
        assert "\n" not in str(failure.value)
    with pytest.raises(NavigationError, match="timeout"):
        await page.navigate(f"{site}/slow?ms=5000", timeout=0.3)
    await page.navigate(f"{site}/second.html")
    assert await page.evaluate("text.textContent") == "second page"


async def test_goes_back_but_not_beyond_the_start(page: Page, pages: str) -> None:
    assert not await page.back()
    await page.navigate(f"{pages}/nuisance.html")
    assert not await page.back()
    await page.click(20, 180)
    assert (await page.evaluate_settled("document.title")).value == "second"
    assert await page.back()
    assert (await page.evaluate_settled("document.title")).value == "nuisance"


async def test_a_click_that_navigates_reads_the_new_page(page: Page, site: str) -> None:
    for _ in range(10):
        await page.navigate(f"{site}/nuisance.html")
        await page.click(20, 180)
        read = await page.evaluate_settled("[document.title, document.readyState]")
        assert read.value == ["second", "complete"]
        assert read.settled


async def test_screenshot_has_the_size_of_the_viewport(page: Page, pages: str) -> None:
    await page.set_viewport(320, 200, 2.0)
    await page.navigate(f"{pages}/controls.html")
    image = await page.screenshot()
    assert image.startswith(b"\x89PNG")
    assert struct.unpack(">II", image[16:24]) == (640, 400)


async def test_pages_share_nothing(process: ChromiumProcess, site: str) -> None:
    first, second = await Page.open(process.client), await Page.open(process.client)
    for page in (first, second):
        await page.navigate(f"{site}/second.html")
    await first.evaluate("(document.cookie = 'a=1', localStorage.a = 1)")
    assert await first.evaluate("[document.cookie, localStorage.a]") == ["a=1", "1"]
    assert await second.evaluate("[document.cookie, localStorage.a ?? null]") == ["", None]
    assert await first.close()
    assert await second.evaluate("1") == 1
