"""A program is asked for its version before a run writes or starts anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from webgym.errors import BrowserError
from webgym_workers.browser.find import chromium_version

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there it opens a window")


def program(folder: Path, script: str) -> Path:
    path = folder / "chromium"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_chromium_says_its_version(tmp_path: Path) -> None:
    assert (
        chromium_version(program(tmp_path, "echo 'Chromium 156.0.8078.114 built on x'")) == "156.0.8078.114"
    )


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 0", "it says: nothing"),
        ("echo 'true (GNU coreutils) 9.1'", "coreutils"),
        ("echo 'error while loading shared libraries: libnss3.so' >&2; exit 127", "libnss3"),
        ("echo 'Chromium 156.0.8078.114'; exit 1", "Chromium 156"),
    ],
)
def test_what_is_no_chromium_is_told_by_its_own_words(tmp_path: Path, script: str, words: str) -> None:
    with pytest.raises(BrowserError, match=words):
        chromium_version(program(tmp_path, script))


def test_one_that_hangs_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with pytest.raises(BrowserError, match=r"no answer in 0\.2 s"):
        chromium_version(program(tmp_path, "exec sleep 60"), patience=0.2)


def test_what_cannot_be_run_at_all(tmp_path: Path) -> None:
    path = tmp_path / "chromium"
    path.write_bytes(b"\x7fELFgarbage")
    path.chmod(0o755)
    with pytest.raises(BrowserError, match="cannot be run"):
        chromium_version(path)
