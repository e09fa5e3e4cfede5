"""The engine on its own: the example of its documentation as it is written, elements, and typed outcomes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from webgym_workers.browser import BrowserOptions, BrowserPool, ObservedPage, faults

pytestmark = pytest.mark.asyncio(loop_scope="session")

DOCS = Path(__file__).parents[2] / "docs"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pool(chromium: Path) -> AsyncIterator[BrowserPool]:
    async with BrowserPool(BrowserOptions(width=640, height=400), 1) as pool:
        yield pool


@pytest_asyncio.fixture(loop_scope="session")
async def shop(pool: BrowserPool, pages: str) -> AsyncIterator[ObservedPage]:
    async with pool.page() as page:
        await page.navigate(f"{pages}/shop.html")
        yield page


async def test_the_example_runs_as_it_is_written(chromium: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = re.search(r"```python\n(.*?)```", (DOCS / "engine.md").read_text("utf-8"), re.DOTALL)
    assert example is not None
    # In a thread, because it has an event loop of its own.
    await asyncio.to_thread(exec, compile(example.group(1), "engine.md", "exec"), {})
    assert capsys.readouterr().out == "Ada (224, 224, 3) True\n"


async def test_elements_by_selector_and_by_text(shop: ObservedPage) -> None:
    await (await shop.find("#name")).type("Ada")
    await (await shop.find(text="Size")).select("Large")
    await (await shop.find(text="order")).click()
    assert await shop.evaluate("said.textContent") == "Ada ordered a Large one"
    field = await shop.find("input")
    await field.type("Grace")
    await field.clear()
    assert (await shop.find("input")).node.value == ""
    # In a shadow root.
    await (await shop.find(".inner")).click()
    assert (await shop.observe()).title == "Within"
    assert [element.node.id for element in await shop.find_all("button, #size")] == [
        (await shop.find(one)).node.id for one in ("#size", "#order", ".inner")
    ]


async def test_an_element_that_cannot_be_acted_on_says_why(shop: ObservedPage) -> None:
    button, size = await shop.find(text="Order now"), await shop.find("#size")
    for find, reason in [
        (shop.find("#nothing"), "not found"),
        (shop.find(text="nothing"), "not found"),
        (shop.find("#["), "not a CSS selector"),
        (size.select("Huge"), "no such option any more"),
    ]:
        with pytest.raises(faults.ElementFault) as fault:
            await find
        assert fault.value.reason == reason
    await shop.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<div style=\"position:fixed;inset:0;background:#000\">')"
    )
    with pytest.raises(faults.ElementFault, match="button 'Order now': covered"):
        await button.click()
    await shop.evaluate("order.remove")
    await shop.evaluate("document.getElementById('order').remove()")
    with pytest.raises(faults.ElementFault, match="gone"):
        await button.click()
    assert await shop.evaluate("document.title") == "Shop"


async def test_nodes_and_picture_are_of_one_moment(shop: ObservedPage) -> None:
    await shop.evaluate("document.body.style.background = '#0000ff'")
    look = await shop.look()
    assert look.settled
    assert look.frame.dtype == np.uint8
    assert look.snapshot.width == 640
    assert "Order now" in [node.caption for node in look.snapshot.nodes]
    assert look.frame[-1, -1].tolist()[0] < 60 < look.frame[-1, -1].tolist()[2]
    assert (await shop.frame()).shape == (224, 224, 3)


async def test_who_asks_for_a_page_waits_for_a_browser_that_is_free(pool: BrowserPool) -> None:
    order: list[int] = []

    async def use(number: int) -> None:
        async with pool.page() as page:
            order.append(number)
            assert await page.evaluate("1") == 1
            assert len(pool[0].pages) == 1

    await asyncio.gather(*[use(number) for number in range(3)])
    assert sorted(order) == [0, 1, 2]
    assert pool[0].pages == ()
