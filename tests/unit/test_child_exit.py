"""The end of a child is noticed when it happens, and the child stays for its parent to reap."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from webgym.child_exit import exited, until_exit, wait_for_exit

PATIENCE = 60.0


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """It ends when its stdin does."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    yield process
    process.kill()
    process.communicate()


@pytest.fixture(params=[True, False], ids=["descriptor", "none"])
def descriptors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the system has process descriptors."""
    if not request.param:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    return bool(request.param)


def end(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    child.stdin.close()


@pytest.mark.usefixtures("descriptors")
def test_waiting_ends_with_the_child_or_with_the_time(child: subprocess.Popen[bytes]) -> None:
    assert not wait_for_exit(child, 0.02)
    assert not exited(child)
    end(child)
    assert wait_for_exit(child, PATIENCE)
    assert exited(child)
    assert child.returncode is None
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    assert child.wait() == 0
    assert wait_for_exit(child, 0.0)


async def test_it_can_be_awaited(child: subprocess.Popen[bytes], descriptors: bool) -> None:
    waiting = asyncio.create_task(until_exit(child))
    await asyncio.sleep(0)
    assert not waiting.done()
    end(child)
    await asyncio.wait_for(waiting, PATIENCE)
    assert (child.returncode is None) == (descriptors and hasattr(os, "pidfd_open"))
    await asyncio.wait_for(until_exit(child), PATIENCE)


async def test_who_waits_no_longer_leaves_nothing_behind(child: subprocess.Popen[bytes]) -> None:
    before = psutil.Process().num_fds()
    waiting = asyncio.create_task(until_exit(child))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert psutil.Process().num_fds() == before
    assert not exited(child)
