"""The end of a run: the report, and wishes to end while it is written."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from webgym.errors import RunError
from webgym.manifest import parse_manifest
from webgym.run.session import Wishes, limits_of, signals_as_wishes, write_report
from webgym.rundir import RunDirectory
from webgym_learner.checks import check_device

HALF = """
import os, time
from pathlib import Path
out = Path({out!r})
(out / f".report.html.{{os.getpid()}}.tmp").write_text("<htm")
(out / "begun").touch()
time.sleep(60)
"""
MANIFEST = """
apiVersion: webgym.io/v1alpha1
kind: WebGymRun
metadata: {name: demo}
spec:
  task: {name: miniwob.click-test}
  stop: {steps: 100}
"""


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    with RunDirectory.create(tmp_path / "a run") as directory:
        directory.manifest.write_text(MANIFEST)
    return directory


async def test_a_report_that_is_written_is_no_trouble(directory: RunDirectory) -> None:
    assert await write_report(directory, Wishes(), (sys.executable, "-S", "-c", "")) is None


async def test_a_report_that_fails_says_how_to_have_it(directory: RunDirectory) -> None:
    trouble = await write_report(directory, Wishes(), (sys.executable, "-S", "-c", "raise SystemExit(5)"))
    assert trouble is not None
    assert not trouble.interrupted
    assert "exit 5" in trouble.message
    assert f"webgym report '{directory.path}'" in trouble.message


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupt_breaks_the_report_off_and_leaves_nothing_half_written(
    directory: RunDirectory, number: signal.Signals
) -> None:
    argv = (sys.executable, "-S", "-c", HALF.format(out=str(directory.path)))
    with signals_as_wishes() as wishes:
        report = asyncio.create_task(write_report(directory, wishes, argv))
        async with asyncio.timeout(20):
            while not (directory.path / "begun").exists():
                await asyncio.sleep(0.01)
        os.kill(os.getpid(), number)
        trouble = await asyncio.wait_for(report, 20)
    assert trouble is not None
    assert trouble.interrupted
    assert trouble.message.startswith("interrupted: the report was not written; write it by: webgym report ")
    assert not list(directory.path.glob(".*.tmp"))


async def test_each_signal_is_heard_by_whoever_is_responsible() -> None:
    heard: list[str] = []
    with signals_as_wishes() as wishes:
        for number in (signal.SIGINT, signal.SIGHUP):
            before = wishes.count
            os.kill(os.getpid(), number)
            async with asyncio.timeout(10):
                while wishes.count == before:
                    await asyncio.sleep(0.01)
            wishes.hear = lambda: heard.append("second")
    assert heard == ["second"]


def test_limits_follow_the_manifest() -> None:
    manifest = parse_manifest(MANIFEST + "  backoffLimit: 3\n  browser: {navigationTimeoutSeconds: 100}\n")
    limits = limits_of(manifest.spec)
    assert limits.futile_ends == 3
    assert limits.training is None
    assert limits.still is not None
    assert limits.still > 300


def test_a_device_that_is_not_there_is_found_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for device in ("auto", "cpu"):
        check_device(parse_manifest(MANIFEST + f"  learner: {{device: {device}}}\n"))
    manifest = parse_manifest(MANIFEST + "  learner: {device: cuda}\n")
    with pytest.raises(RunError, match=r"learner\.device is cuda"):
        check_device(manifest)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    check_device(manifest)
