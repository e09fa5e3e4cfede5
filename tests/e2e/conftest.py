"""Starting real runs, and ending what a failing test leaves of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e_run import Running


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[..., Running]]:
    """Starts `webgym` commands; what a failing test leaves running is ended."""
    started: list[subprocess.Popen[str]] = []

    def begin(cwd: Path, *arguments: str, out: Path) -> Running:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "webgym", *arguments],
            cwd=cwd,
            env=dict(os.environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        started.append(process)
        return Running(process, out)

    yield begin
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
