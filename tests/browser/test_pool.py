"""The pool keeps its browsers there, whatever happens to one of them."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from webgym.errors import BrowserError
from webgym_workers.browser import slot as slot_module
from webgym_workers.browser.chromium import BrowserOptions, ChromiumProcess
from webgym_workers.browser.faults import BrowserFault, BrowserGone, CDPTimeout
from webgym_workers.browser.pool import BrowserPool
from webgym_workers.browser.slot import BrowserState, age_limit_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

OPTIONS = BrowserOptions(action_timeout=1.0)


async def until_restarted(pool: BrowserPool, reason: str, seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not pool.restarts[reason] or pool.alive < pool.count:
            await asyncio.sleep(0.02)


async def use_and_lose(pool: BrowserPool, victim: int) -> None:
    async with pool.browser(0) as browser:
        doomed = await browser.new_page()
        os.kill(victim, signal.SIGKILL)
        await doomed.evaluate("new Promise(() => {})", timeout=20)


async def hang(pool: BrowserPool, pages: str) -> None:
    async with pool.browser(0) as browser:
        page = await browser.new_page()
        await page.navigate(f"{pages}/nuisance.html")
        await page.click(20, 140)


async def test_one_killed_browser_is_replaced_while_the_other_goes_on(chromium: Path) -> None:
    async with BrowserPool(OPTIONS, 2) as pool:
        await pool.ready()
        assert pool.alive == 2
        async with pool.browser(1) as other:
            page = await other.new_page(scripts=["globalThis.here = 1"])
            victim = pool[0].process.pid
            with pytest.raises(BrowserGone):
                await use_and_lose(pool, victim)
            async with pool.browser(0) as browser:
                assert browser.process.pid != victim
                assert browser.pages == ()
                assert await (await browser.new_page()).evaluate("1") == 1
            assert await page.evaluate("here") == 1
        assert pool.restarts == {"died": 1}
        assert all(size > 0 for size in pool.resident_bytes())
        # Pages outlive a borrower.
        async with pool.browser(1) as other:
            assert other.pages == (page,)
        profiles = [pool[i].process.profile for i in range(2)]
    assert pool.alive == 0
    assert not any(profile.exists() for profile in profiles)


async def test_a_hung_page_is_dropped_and_a_hung_browser_replaced(
    chromium: Path, pages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_module, "HEALTH_SECONDS", 0.1)
    monkeypatch.setattr(slot_module, "HANG_SECONDS", 1.0)
    async with BrowserPool(OPTIONS, 1) as pool:
        await pool.ready()
        pid = pool[0].process.pid
        with pytest.raises(CDPTimeout):
            await hang(pool, pages)
        async with pool.browser(0) as browser:
            assert browser.pages == ()
            assert await (await browser.new_page()).evaluate("1") == 1
            if not pool.restarts:
                assert browser.process.pid == pid
            os.kill(browser.process.pid, signal.SIGSTOP)
            start = time.monotonic()
            with pytest.raises(BrowserFault):
                await browser.new_page()
            assert time.monotonic() - start < 5
        await until_restarted(pool, "hung")


@pytest.mark.parametrize(
    ("reason", "limits"), [("memory", {"memory_limit": 1 << 20}), ("age", {"age_limit": 0.1})]
)
async def test_too_large_or_too_old_a_browser_is_replaced_when_its_borrower_is_done(
    chromium: Path, monkeypatch: pytest.MonkeyPatch, reason: str, limits: dict[str, Any]
) -> None:
    monkeypatch.setattr(slot_module, "HEALTH_SECONDS", 0.05)
    monkeypatch.setattr(slot_module, "MEMORY_EXCESS", 1e9)
    async with BrowserPool(OPTIONS, 1, **limits) as pool:
        async with pool.browser(0) as browser:
            pid = browser.process.pid
            await asyncio.sleep(0.5)
            assert browser.process.pid == pid
        # Seen at once by the next, who never waits for the health check: borrowers may follow each other closely.
        async with pool.browser(0) as browser:
            assert browser.process.pid != pid
        assert pool.restarts[reason] >= 1


async def test_a_browser_far_over_its_memory_limit_is_replaced_at_once(
    chromium: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_module, "HEALTH_SECONDS", 0.05)
    async with BrowserPool(OPTIONS, 1, memory_limit=1 << 20) as pool, pool.browser(0):
        async with asyncio.timeout(10):
            while not pool.restarts["memory"]:
                await asyncio.sleep(0.02)


async def test_a_browser_of_which_any_process_is_stopped_is_replaced_in_no_time(chromium: Path) -> None:
    async with BrowserPool(OPTIONS, 1) as pool:
        async with pool.browser(0) as browser:
            page = await browser.new_page()
            renderers = [
                p.pid
                for p in psutil.Process(browser.process.pid).children(recursive=True)
                if "--type=renderer" in p.cmdline()
            ]
            os.kill(renderers[-1], signal.SIGSTOP)
            start = time.monotonic()
            with pytest.raises(BrowserFault):
                await page.evaluate("new Promise(() => {})", timeout=30)
            assert time.monotonic() - start < 10  # by the health check, not by the deadline
        await until_restarted(pool, "hung")


async def test_slots_started_together_reach_their_age_limits_one_by_one() -> None:
    limits = [age_limit_of(index, 1000.0) for index in range(50)]
    assert all(limit is not None and 750 <= limit <= 1000 for limit in limits)
    in_order = sorted(limit for limit in limits if limit is not None)
    assert min(b - a for a, b in itertools.pairwise(in_order)) > 2
    assert age_limit_of(3, None) is None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
async def test_each_browser_stays_on_its_cores(chromium: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    groups = [(cores[0],), (cores[-1],)]
    async with BrowserPool(OPTIONS, 2, affinity=groups) as pool:
        await pool.ready()
        for index, group in enumerate(groups):
            tree = psutil.Process(pool[index].process.pid)
            for process in (tree, *tree.children(recursive=True)):
                assert tuple(process.cpu_affinity()) == group


async def test_a_browser_that_cannot_start_is_an_error_for_its_users(tmp_path: Path) -> None:
    program = tmp_path / "browser"
    program.write_text("#!/bin/sh\necho 'FATAL: broken' >&2; exit 1\n")
    program.chmod(0o755)
    async with BrowserPool(BrowserOptions(executable=str(program), sandbox="Disabled"), 2) as pool:
        with pytest.raises(BrowserError, match="broken"):
            await pool.ready()
        with pytest.raises(BrowserError, match="broken"):
            async with pool.browser(1):
                pass
        assert pool[1].state is BrowserState.FAILED


async def test_cancelling_the_pools_user_ends_its_browsers(chromium: Path) -> None:
    profiles: list[Path] = []

    async def use() -> None:
        async with BrowserPool(OPTIONS, 1) as pool, pool.browser(0) as browser:
            profiles.append(browser.process.profile)
            await asyncio.sleep(60)

    task = asyncio.ensure_future(use())
    async with asyncio.timeout(20):
        while not profiles:
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not profiles[0].exists()


async def test_a_browser_that_cannot_be_ended_is_told_and_the_others_end(
    chromium: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with BrowserPool(OPTIONS, 2) as pool:
        await pool.ready()
        pids = [pool[i].process.pid for i in range(2)]
        first, stop = pool[0].process, ChromiumProcess.stop

        async def fails(process: ChromiumProcess, *, graceful: bool = True) -> None:
            await stop(process, graceful=graceful)
            if process is first:
                raise OSError("no such descriptor")

        monkeypatch.setattr(ChromiumProcess, "stop", fails)
    assert [r.getMessage() for r in caplog.records] == ["browser 0 could not be ended"]
    assert not any(psutil.pid_exists(pid) for pid in pids)
