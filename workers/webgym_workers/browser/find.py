"""Where Chromium is on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from webgym.errors import BrowserError

__all__ = ["chromium_version", "find_chromium"]

PATH_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "chrome-headless-shell",
)

# Distributions put a shell script at /usr/bin/chromium which adds flags of its own (Debian's adds
# --disable-dev-shm-usage when /dev/shm looks small). We start the program behind it.
PROGRAMS_BEHIND_WRAPPERS = (
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
)
MAC_PROGRAMS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
MEND = (
    "install it with `apt-get install chromium` or `playwright install --with-deps chromium`, "
    "or set browser.executable"
)


def find_chromium(
    executable: str | os.PathLike[str] | None = None, environ: Mapping[str, str] = os.environ
) -> Path:
    """The Chromium program to start.

    Looked for in this order: ``executable``; the variable ``WEBGYM_CHROMIUM``; names on ``PATH``; where
    distributions and macOS keep it; the browser that Playwright installed.

    Args:
        executable: A path (or a name on ``PATH``) that the user gave; nothing else is then tried.
        environ: The environment to read.

    Raises:
        BrowserError: There is none, or the one that was named cannot be run.
    """
    if executable:
        return _named(os.fspath(executable), "browser.executable", environ)
    if environ.get("WEBGYM_CHROMIUM"):
        return _named(environ["WEBGYM_CHROMIUM"], "WEBGYM_CHROMIUM", environ)
    for name in PATH_NAMES:
        found = shutil.which(name, path=environ.get("PATH"))
        if found:
            return _behind_wrapper(Path(found))
    for place in map(Path, MAC_PROGRAMS if sys.platform == "darwin" else PROGRAMS_BEHIND_WRAPPERS):
        if _runnable(place):
            return place
    found_by_playwright = _playwright_chromium()
    if found_by_playwright is not None:
        return found_by_playwright
    raise BrowserError(f"no Chromium on this machine: {MEND}")


def chromium_version(executable: Path, patience: float = 20.0) -> str:
    """What a program says of its version, such as ``156.0.8078.114``; a few milliseconds where it is Chromium.

    Args:
        executable: from :func:`find_chromium`.
        patience: seconds that it may take.

    Raises:
        BrowserError: it is no Chromium, lacks a library, or hangs.
    """
    if sys.platform == "win32":
        return ""  # there the program opens a window instead
    try:
        answer = subprocess.run(
            [executable, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BrowserError(f"{executable} --version gives no answer in {patience:g} s: {MEND}") from None
    except OSError as error:
        raise BrowserError(f"{executable} cannot be run: {error.strerror}; {MEND}") from error
    # Four numbers, as Chromium and all that are made of it have, and hardly another program.
    version = re.search(r"\d+(\.\d+){3}", answer.stdout)
    if answer.returncode == 0 and version:
        return version[0]
    said = next((line for line in (answer.stderr + answer.stdout).splitlines() if line.strip()), "nothing")
    raise BrowserError(f"{executable} is no Chromium that can be run here, it says: {said[:300]}; {MEND}")


def _named(name: str, source: str, environ: Mapping[str, str]) -> Path:
    path = Path(name).expanduser()
    if os.sep not in name:
        on_path = shutil.which(name, path=environ.get("PATH"))
        if on_path is None:
            raise BrowserError(f"{source} names {name!r}, which is not on PATH: {MEND}")
        path = Path(on_path)
    if not path.exists():
        raise BrowserError(f"{source} names {name}, which does not exist: {MEND}")
    if not _runnable(path):
        raise BrowserError(f"{source} names {name}, which is not a program that can be run: {MEND}")
    return _behind_wrapper(path.resolve())


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _behind_wrapper(path: Path) -> Path:
    """The program that a distribution's wrapper script starts, or ``path`` itself if it is no wrapper."""
    path = path.resolve()
    try:
        with path.open("rb") as file:
            is_script = file.read(2) == b"#!"
    except OSError:
        return path
    if is_script and re.search(r"chrom", path.name):
        for place in PROGRAMS_BEHIND_WRAPPERS:
            program = Path(place)
            same_kind = ("google" in path.name) == ("google" in place)
            if same_kind and _runnable(program):
                return program
    return path


def _playwright_chromium() -> Path | None:
    """The Chromium that Playwright installed, asked of Playwright itself in a process of its own.

    Importing Playwright costs 0.3 s and memory, so the process that drives browsers never does.
    """
    script = (
        "import importlib.util, sys\n"
        "if importlib.util.find_spec('playwright') is None: sys.exit(3)\n"
        "from playwright.sync_api import sync_playwright\n"
        "with sync_playwright() as p: print(p.chromium.executable_path)\n"
    )
    try:
        answer = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    path = Path(answer.stdout.strip() or "/nonexistent")
    return path if answer.returncode == 0 and _runnable(path) else None
