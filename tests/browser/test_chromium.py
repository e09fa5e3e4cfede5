"""Browser processes: found or clearly missing, started or clearly not, and gone without a trace."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from webgym.errors import BrowserError
from webgym_workers.browser.chromium import BrowserOptions, ChromiumProcess
from webgym_workers.browser.find import find_chromium
from webgym_workers.browser.page import Page

pytestmark = pytest.mark.asyncio(loop_scope="session")


def processes_of(profile: Path) -> list[int]:
    """Living processes that have the profile on their command line."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        arguments = process.info["cmdline"] or []
        ours = any(str(profile) in argument for argument in arguments)
        if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.info["pid"])
    return found


def profiles() -> set[Path]:
    """Profile folders of this process."""
    return set(Path(tempfile.gettempdir()).glob(f"webgym-chromium-{os.getpid()}-*"))


PARENT = """
import asyncio
from webgym_workers.browser.chromium import BrowserOptions, ChromiumProcess
from webgym_workers.browser.page import Page

async def main():
    browser = await ChromiumProcess.launch(BrowserOptions())
    await Page.open(browser.client)
    print(browser.profile, browser.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


async def test_stop_leaves_no_process_and_no_profile(chromium: Path) -> None:
    browser = await ChromiumProcess.launch(BrowserOptions())
    await Page.open(browser.client)
    profile = browser.profile
    tree = psutil.Process(browser.pid).children(recursive=True)
    assert browser.alive
    assert processes_of(profile)
    assert 50 << 20 < browser.resident_bytes() < 2 << 30
    await browser.stop()
    await browser.stop()
    assert not browser.alive
    assert not profile.exists()
    assert not psutil.pid_exists(browser.pid)
    await until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in tree))


async def test_a_stopped_browser_is_ended_all_the_same(chromium: Path) -> None:
    browser = await ChromiumProcess.launch(BrowserOptions())
    os.kill(browser.pid, signal.SIGSTOP)
    start = time.monotonic()
    await browser.stop(graceful=False)
    assert time.monotonic() - start < 3
    await until(lambda: not processes_of(browser.profile))


@pytest.mark.parametrize("stopped", [False, True])
async def test_nothing_outlives_a_killed_parent(chromium: Path, stopped: bool) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    where, pid = (await parent.stdout.readline()).decode().split()
    profile = Path(where)
    assert processes_of(profile)
    if stopped and sys.platform == "linux":
        os.kill(int(pid), signal.SIGSTOP)
    parent.kill()
    await parent.wait()
    await until(lambda: not processes_of(profile))
    await until(lambda: not profile.exists())


async def test_cancelling_a_launch_leaves_nothing(chromium: Path) -> None:
    before = profiles()
    for delay in (0.0, 0.02, 0.1):
        launch = asyncio.ensure_future(ChromiumProcess.launch(BrowserOptions()))
        await asyncio.sleep(delay)
        launch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await launch
    await until(lambda: set(Path(tempfile.gettempdir()).glob(f"webgym-chromium-{os.getpid()}-*")) == before)


async def test_secrets_in_the_environment_stay_with_us(
    chromium: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    browser = await ChromiumProcess.launch(BrowserOptions())
    assert "SECRET_TOKEN" not in psutil.Process(browser.pid).environ()
    await browser.stop()


async def test_a_missing_browser_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain").write_text("not a program")
    for name in (str(tmp_path / "none"), str(tmp_path / "plain"), "no-such-browser-anywhere"):
        with pytest.raises(BrowserError, match="apt-get install chromium") as failure:
            await ChromiumProcess.launch(BrowserOptions(executable=name))
        assert name in str(failure.value)
        assert "\n" not in str(failure.value)
    with pytest.raises(BrowserError, match="WEBGYM_CHROMIUM"):
        find_chromium(None, {"WEBGYM_CHROMIUM": str(tmp_path / "none"), "PATH": ""})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "echo 'chromium: error while loading shared libraries: libnss3.so: cannot open' >&2; exit 127",
            "libnss3",
        ),
        ("echo '[1:2:ERROR:x.cc(1)] Failed to move to new namespace' >&2; exit 1", "Failed to move"),
        ("exit 3", "ended at once"),
        ("exec sleep 60", "no answer in 0.5 s"),
        ("while :; do echo noise noise noise >&2; done", "no answer in 0.5 s|noise"),
    ],
)
async def test_a_browser_that_cannot_start_says_why(tmp_path: Path, body: str, words: str) -> None:
    program = script(tmp_path / "browser", body)
    with pytest.raises(BrowserError, match=words) as failure:
        await ChromiumProcess.launch(BrowserOptions(executable=program, sandbox="Disabled"), timeout=0.5)
    assert "\n" not in str(failure.value)
    await until(lambda: not processes_of(tmp_path))


async def test_a_file_that_is_no_program_says_so(tmp_path: Path) -> None:
    program = tmp_path / "browser"
    program.write_bytes(b"\x00\x01\x02")
    program.chmod(0o755)
    with pytest.raises(BrowserError, match="Exec format error"):
        await ChromiumProcess.launch(BrowserOptions(executable=str(program), sandbox="Disabled"))


async def test_sandbox_modes(tmp_path: Path, chromium: Path) -> None:
    from webgym_workers.browser.sandbox import sandbox_obstacle

    off = await ChromiumProcess.launch(BrowserOptions(sandbox="Disabled"))
    assert not off.sandboxed
    await off.stop()
    preferred = await ChromiumProcess.launch(BrowserOptions(sandbox="Prefer"))
    assert preferred.sandboxed is (preferred.sandbox_obstacle is None)
    await preferred.stop()
    if sandbox_obstacle(chromium) is not None:
        with pytest.raises(BrowserError, match="Require"):
            await ChromiumProcess.launch(BrowserOptions(sandbox="Require"))
    # A program that refuses the sandbox although nothing seemed to be in its way.
    fussy = tmp_path / "fussy"
    argument = 'case "$*" in *--no-sandbox*) exec ' + str(chromium) + ' "$@";; esac'
    script(fussy, f"{argument}\necho '[1:2:FATAL:z.cc(1)] No usable sandbox!' >&2; exit 1")
    browser = await ChromiumProcess.launch(BrowserOptions(executable=str(fussy)))
    assert not browser.sandboxed
    assert browser.sandbox_obstacle
    await browser.stop()


async def test_an_unwritable_temporary_folder_is_one_clear_line(
    chromium: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    with pytest.raises(BrowserError, match="TMPDIR"):
        await ChromiumProcess.launch(BrowserOptions())
