"""A supervisor over tiny programs, with a Redis that says what the test wants, and a view that remembers."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from webgym.errors import BrokerError
from webgym.process import RestartPolicy
from webgym.run.plan import Limits, Outcome, Programs
from webgym.run.snapshot import Snapshot
from webgym.run.supervisor import Supervisor
from webgym.rundir import RunDirectory

SLEEP = "import time; time.sleep(60)"
POLITE = """
import os, signal, sys, time
def leave(*args):
    open(os.environ["WEBGYM_OUT"] + "/" + os.environ["WEBGYM_ID"] + ".drained", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
open(os.environ["WEBGYM_OUT"] + "/" + os.environ["WEBGYM_ID"] + ".up", "w").close()
time.sleep(60)
"""


@dataclass
class FakeLink:
    """A Redis that says what the test wants."""

    now: Snapshot = field(default_factory=Snapshot)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    silent: bool = False
    abandoned: bool = False
    url: str = "unix:///nowhere"
    pids: tuple[int, ...] = ()

    async def snapshot(self) -> Snapshot:
        if self.silent:
            raise BrokerError("no answer")
        return self.now

    async def lost(self) -> str:
        await self.gone.wait()
        return "the embedded broker ended"

    def abandon(self) -> None:
        self.abandoned = True


class Recorder:
    """A view that remembers."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.phases: list[str] = []
        self.warnings: list[str] = []

    def update(self, snapshot: Snapshot, *, restarts: int, memory: int) -> None:
        self.phases.append(snapshot.phase)

    def event(self, text: str) -> None:
        self.events.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def close(self) -> None:
        pass


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory.create(tmp_path / "run") as directory:
        directory.manifest.write_text("")
        yield directory


def supervise(
    directory: RunDirectory, *, learner: str, worker: str = POLITE, workers: int = 1, **limits: float
) -> tuple[Supervisor, FakeLink, Recorder]:
    argv = (sys.executable, "-S", "-c")
    link, view = FakeLink(), Recorder()
    supervisor = Supervisor(
        directory,
        link,
        view,
        Programs((*argv, worker), (*argv, learner), workers),
        limits=Limits(**{"poll": 0.02, "learner_grace": 5, "worker_grace": 5, **limits}),
        restart=RestartPolicy(max_failures=2, initial_delay=0.01, max_delay=0.01),
    )
    return supervisor, link, view


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        await asyncio.sleep(0.01)


def alive() -> set[psutil.Process]:
    return {c for c in psutil.Process().children(recursive=True) if c.status() != psutil.STATUS_ZOMBIE}


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """No test leaves a process; those of the session's other fixtures (a server, a browser) are not its business."""
    before = alive()
    yield
    assert alive() - before == set()


async def ended(supervisor: Supervisor) -> Outcome:
    return await asyncio.wait_for(supervisor.run(), 20)
