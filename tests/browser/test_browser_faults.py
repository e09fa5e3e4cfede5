"""Pages and browsers that misbehave: every call ends within its deadline, with a type that says what happened."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from webgym_workers.browser.chromium import BrowserOptions, ChromiumProcess
from webgym_workers.browser.faults import (
    BrowserFault,
    BrowserGone,
    CDPTimeout,
    NavigationError,
    TargetBlocked,
    TargetClosed,
    TargetCrashed,
)
from webgym_workers.browser.page import Page

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_dialogs_opened_by_a_click_are_answered(page: Page, pages: str) -> None:
    await page.navigate(f"{pages}/nuisance.html")
    await page.click(20, 20)
    read = await page.evaluate_settled("answers")
    assert read.value == [None, True, "default"]
    assert [(d.kind, d.message) for d in page.dialogs] == [
        ("alert", "one"),
        ("confirm", "two"),
        ("prompt", "three"),
    ]


async def test_a_dialog_does_not_deadlock_a_full_queue(page: Page) -> None:
    calls = [page.session.post("Runtime.evaluate", {"expression": f"alert({n})"}) for n in range(12)]
    await asyncio.gather(*calls)
    assert [d.message for d in page.dialogs] == [str(n) for n in range(12)]


async def test_beforeunload_does_not_hold_a_page(page: Page, pages: str) -> None:
    await page.navigate(f"{pages}/nuisance.html")
    await page.click(20, 220)
    await page.navigate(f"{pages}/second.html", timeout=5)
    assert [d.kind for d in page.dialogs] == ["beforeunload"]
    assert await page.evaluate("document.title") == "second"


async def test_links_to_other_programs_do_nothing(page: Page, pages: str) -> None:
    await page.navigate(f"{pages}/nuisance.html")
    await page.click(20, 260)
    await page.settle()
    # The dialog that Chromium would open swallows all input from then on.
    await page.click(20, 20)
    assert (await page.evaluate_settled("answers.length")).value == 3


async def test_a_script_that_opens_another_program_costs_the_page(
    process: ChromiumProcess, pages: str
) -> None:
    page = await Page.open(process.client)
    await page.navigate(f"{pages}/nuisance.html")

    async def click_and_read() -> None:
        await page.click(20, 300)
        await page.settle()

    with pytest.raises(TargetBlocked, match="sms:"):
        await click_and_read()
    assert page.closed
    assert await page.close()


@pytest.mark.parametrize("how", ["Page.crash", "chrome://crash"])
async def test_a_crash_fails_pending_calls_at_once(process: ChromiumProcess, pages: str, how: str) -> None:
    page = await Page.open(process.client)
    await page.navigate(f"{pages}/second.html")
    pending = [
        asyncio.ensure_future(page.evaluate("new Promise(() => {})", timeout=30)),
        asyncio.ensure_future(page.wait_for_change(30)),
        asyncio.ensure_future(page.activity.wait_idle(0) if how == "Page.crash" else page.evaluate("1")),
    ]
    await asyncio.sleep(0)
    start = time.monotonic()
    if how == "Page.crash":
        page.session.post("Page.crash")
    else:
        with pytest.raises(BrowserFault):
            await page.navigate(how)
    for call in pending[:2]:
        with pytest.raises(TargetCrashed):
            await call
    assert time.monotonic() - start < 3
    with pytest.raises(TargetCrashed):
        await page.evaluate("1")
    assert page.closed
    assert await page.close()
    # The browser and its other pages live on.
    other = await Page.open(process.client)
    assert await other.evaluate("1") == 1
    await other.close()


async def test_an_endless_loop_costs_its_page_only(process: ChromiumProcess, pages: str) -> None:
    page = await Page.open(process.client, timeout=0.5)
    await page.navigate(f"{pages}/nuisance.html")
    start = time.monotonic()
    with pytest.raises(CDPTimeout):
        await page.click(20, 140)
    with pytest.raises(CDPTimeout):
        await page.evaluate_settled("1", 0.2)
    with pytest.raises(NavigationError, match="timeout"):
        await page.navigate(f"{pages}/second.html", timeout=0.5)
    assert time.monotonic() - start < 4
    start = time.monotonic()
    assert await page.close()
    assert time.monotonic() - start < 3
    fresh = await Page.open(process.client)
    assert await fresh.evaluate("1") == 1
    await fresh.close()


async def test_kill_of_the_browser_fails_everything_at_once(chromium: object) -> None:
    browser = await ChromiumProcess.launch(BrowserOptions())
    page = await Page.open(browser.client)
    pending = [
        asyncio.ensure_future(page.evaluate("new Promise(() => {})", timeout=30)),
        asyncio.ensure_future(browser.client.browser.call("Target.getTargets", timeout=30)),
        asyncio.ensure_future(page.navigate("data:text/html,x", timeout=30)),
    ]
    await asyncio.sleep(0)
    start = time.monotonic()
    os.kill(browser.pid, signal.SIGKILL)
    results = await asyncio.gather(*pending, return_exceptions=True)
    assert isinstance(results[0], BrowserGone)
    assert time.monotonic() - start < 2
    with pytest.raises(BrowserGone):
        await page.evaluate("1")
    assert not browser.alive
    await browser.stop()
    assert not browser.profile.exists()


async def test_a_cancelled_caller_leaves_no_orphan(page: Page) -> None:
    client = page.session.client
    waiting = asyncio.ensure_future(page.evaluate("new Promise((f) => { globalThis.go = f; })", timeout=30))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    # The late answer is taken off the books without disturbing anybody.
    await page.evaluate("go(1)")
    assert await page.evaluate("2") == 2
    assert not client.pending


async def test_cancelled_while_queued_is_never_sent(page: Page) -> None:
    blockers = [
        asyncio.ensure_future(
            page.evaluate("new Promise((f) => (globalThis.all ??= []).push(f))", timeout=30)
        )
        for _ in range(5)
    ]
    await asyncio.sleep(0.05)
    queued = asyncio.ensure_future(page.evaluate("globalThis.ran = true"))
    await asyncio.sleep(0)
    queued.cancel()
    late = asyncio.ensure_future(page.evaluate("globalThis.late = true", timeout=0.1))
    with pytest.raises(CDPTimeout):
        await late
    page.session.post("Runtime.terminateExecution")
    for blocker in blockers:
        blocker.cancel()
    await page.close()
    with pytest.raises(TargetClosed):
        await page.evaluate("1")
    assert not page.session.client.pending
