"""Starting real runs, and ending what a failing test leaves of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e_run import Running

from webgym.embedded import find_server

PASSWORD = "open-sesame"


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[..., Running]]:
    """Starts `webgym` commands; what a failing test leaves running is ended."""
    started: list[subprocess.Popen[str]] = []

    def begin(cwd: Path, *arguments: str, out: Path, **environ: str) -> Running:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "webgym", *arguments],
            cwd=cwd,
            env={**os.environ, **environ},
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


@pytest.fixture(scope="session")
def locked_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a server that asks for a password."""
    socket = tmp_path_factory.mktemp("redis") / "s"
    arguments = ("--port", "0", "--unixsocket", str(socket), "--requirepass", PASSWORD, "--save", "")
    server = subprocess.Popen([str(find_server()), *arguments], stdout=subprocess.DEVNULL, cwd=socket.parent)
    end = time.monotonic() + 10
    while not socket.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    yield socket
    server.kill()
    server.wait()
