"""BrowserGym as a peer: installed once into an environment of its own, and driven through a pipe."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from webgym.errors import RunError

__all__ = ["BrowserGym", "Played", "browsergym_environment", "cache_folder"]

log = logging.getLogger(__name__)

PACKAGES = ("browsergym-miniwob==0.14.3",)
_READY = ".complete"
_START_SECONDS = 180.0
_EPISODE_SECONDS = 120.0


class Played(NamedTuple):
    """One episode."""

    reset_seconds: float
    step_seconds: float
    success: bool


def cache_folder() -> Path:
    """Where benches keep what they install: ``$XDG_CACHE_HOME/webgym``, by default ``~/.cache/webgym``."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "webgym"


def browsergym_environment(packages: Sequence[str] = PACKAGES) -> Path:
    """The interpreter of a virtual environment that has BrowserGym; made on the first call, which takes a minute.

    Raises:
        RunError: It cannot be made; the message ends with pip's last line.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    name = hashlib.sha256(" ".join((version, *packages)).encode()).hexdigest()[:10]
    folder = cache_folder() / f"browsergym-{name}"
    python = folder / "bin" / "python"
    if (folder / _READY).exists() and python.exists():
        return python
    log.warning("installing %s into %s, once", " ".join(packages), folder)
    try:
        # What an interrupted attempt has left is no environment.
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        venv.create(folder, with_pip=True, symlinks=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RunError(
            f"cannot make an environment for BrowserGym in {folder}: {error}; set XDG_CACHE_HOME to a writable folder"
        ) from error
    # Not PYTHONPATH: what is installed there must not depend on where the bench runs.
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", *packages],
        env=_environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise RunError(
            f"pip could not install {' '.join(packages)}: {said[-1] if said else 'it said nothing'}"
        )
    (folder / _READY).touch()
    return python


def _environment(folder: Path) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    # Its Playwright wants a Chromium of its own time; it is given ours, in a place where no other Playwright looks.
    return env | {"PLAYWRIGHT_BROWSERS_PATH": str(folder / "browsers")}


class BrowserGym:
    """One running BrowserGym environment with MiniWoB's click-test; made by :meth:`open`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @asynccontextmanager
    async def open(
        cls, python: Path, chromium: Path, pages: Path, seed: int = 0
    ) -> AsyncIterator[BrowserGym]:
        """Start it; it ends with the block.

        Args:
            python: Of :func:`browsergym_environment`.
            chromium: The program that ours uses, too.
            pages: Folder of MiniWoB's pages.
            seed: Of the first episode.

        Raises:
            RunError: It did not start; its own words are on stderr.
        """
        script = str(files(__package__) / "browsergym_peer.py")
        process = await asyncio.create_subprocess_exec(
            *(str(python), "-P", script, str(chromium), str(seed)),
            env=_environment(python.parent.parent) | {"MINIWOB_URL": f"{pages.as_uri()}/"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # Away from the terminal: an interrupt is ours to pass on.
            start_new_session=True,
        )
        try:
            peer = cls(process)
            await peer._line(_START_SECONDS)
            yield peer
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                async with asyncio.timeout(15.0):
                    await process.wait()
            except (TimeoutError, asyncio.CancelledError):
                process.kill()
                await process.wait()

    async def play(self, episodes: int) -> list[Played]:
        """Play some episodes.

        Raises:
            RunError: It broke.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(f"episodes {episodes}\n".encode())
        return [Played(*entry) for entry in json.loads(await self._line(episodes * _EPISODE_SECONDS))]

    async def _line(self, timeout: float) -> bytes:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise RunError(f"BrowserGym did not answer within {timeout:.0f} s") from None
        if not line:
            raise RunError("BrowserGym ended; its error is above")
        return line
