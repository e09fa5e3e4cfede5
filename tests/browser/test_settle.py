"""A page is read when it has come to rest, no later, and within its budget in any case."""

from __future__ import annotations

import statistics

import pytest

from webgym_workers.browser.chromium import ChromiumProcess
from webgym_workers.browser.page import Page

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(
    "kind",
    ["microtask", "message", "timeout", "chain", "frame", "interval", "transition", "observed", "fetched"],
)
async def test_waits_for_what_the_page_has_under_way(page: Page, site: str, kind: str) -> None:
    await page.navigate(f"{site}/unrest.html")
    await page.evaluate(f"later.{kind}() && 0")
    read = await page.evaluate_settled("text.textContent", 3.0)
    assert read.value == "done"
    assert read.settled


async def test_a_quiet_page_is_read_at_once(page: Page, pages: str) -> None:
    await page.navigate(f"{pages}/controls.html")
    await page.settle()
    times = []
    for _ in range(50):
        await page.click(120, 110)
        read = await page.evaluate_settled("1")
        assert read.settled
        times.append(read.milliseconds)
    # Below one frame at 60 a second: a wait for frames would show. Usually it is 0.5 ms.
    assert statistics.median(times) < 10


@pytest.mark.parametrize("kind", ["frames", "timers", "poll"])
async def test_endless_activity_is_cut_off_once_then_known(page: Page, site: str, kind: str) -> None:
    await page.navigate(f"{site}/unrest.html")
    await page.evaluate(f"void endless.{kind}()")
    read = await page.evaluate_settled("typeof endless", 0.3)
    assert read.value == "object"
    assert not read.settled
    assert 250 < read.milliseconds < 1500
    again = await page.evaluate_settled("1", 2.0)
    assert again.settled
    assert again.background >= 1
    assert again.milliseconds < 1500
    # What else happens is still waited for.
    await page.evaluate("void later.transition()")
    assert (await page.evaluate_settled("box.offsetLeft >= 50", 3.0)).value is True


@pytest.mark.parametrize("kind", ["idle", "spinner"])
async def test_what_changes_nothing_is_not_waited_for(page: Page, pages: str, kind: str) -> None:
    await page.navigate(f"{pages}/unrest.html")
    await page.evaluate(f"void endless.{kind}()")
    assert (await page.settle(2.0)).reason == "quiet"
    assert (await page.settle(2.0)).milliseconds < 500


async def test_a_page_cannot_tamper_with_it(page: Page, site: str) -> None:
    await page.navigate(f"{site}/tamper.html")
    read = await page.evaluate_settled("kept")
    assert read.value is True
    assert read.settled


async def test_waits_for_a_change(page: Page, pages: str) -> None:
    await page.navigate(f"{pages}/unrest.html")
    assert not await page.wait_for_change(0.1)
    await page.evaluate("void setTimeout(() => say('late'), 500)")
    assert await page.wait_for_change(5.0)
    assert await page.evaluate("text.textContent") == "late"


async def test_a_slow_navigation_is_waited_for_beyond_the_budget(page: Page, site: str) -> None:
    await page.navigate(f"{site}/nuisance.html")
    await page.click(20, 340)
    read = await page.evaluate_settled("location.pathname", 0.2)
    assert read.value == "/slow"


async def test_a_navigation_without_an_answer_is_called_off(process: ChromiumProcess, site: str) -> None:
    page = await Page.open(process.client, navigation_timeout=0.5)
    await page.navigate(f"{site}/nuisance.html")
    await page.evaluate("elsewhere.href = '/slow?ms=30000'")
    await page.click(20, 340)
    read = await page.evaluate_settled("location.pathname", 0.2)
    assert read.value == "/nuisance.html"
    assert not read.settled
    assert read.milliseconds < 5000
    assert (await page.settle()).reason == "quiet"
    await page.close()


@pytest.mark.parametrize("to", ["/empty", "#here", "javascript:void 0", "mailto:someone@example.org"])
async def test_navigations_that_lead_nowhere_are_no_wait(page: Page, site: str, to: str) -> None:
    await page.navigate(f"{site}/nuisance.html")
    await page.evaluate("(to) => { elsewhere.href = to; }", to)
    await page.click(20, 340)
    read = await page.evaluate_settled("location.pathname", 3.0)
    assert read.value == "/nuisance.html"
    assert read.settled
    assert read.milliseconds < 2000


async def test_timers_that_never_do_anything_are_waited_for_three_times(page: Page, pages: str) -> None:
    await page.navigate(f"{pages}/unrest.html")
    await page.settle()
    fired = []
    for _ in range(6):
        # As a click would: the same place in the page's code sets a fresh timer.
        await page.evaluate("(box.className = '', void endless.menu())")
        fired.append((await page.evaluate_settled("endless.fired", 2.0)).value)
    assert fired[:3] == [1, 2, 3]
    # Those set last have not fired yet, be the machine as slow as to lose one or two meanwhile.
    assert fired[5] < 6
    # Another place in the code is another matter.
    await page.evaluate("void later.timeout()")
    assert (await page.evaluate_settled("text.textContent")).value == "done"
