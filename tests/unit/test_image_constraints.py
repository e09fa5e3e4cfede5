"""What images install is pinned, and what is not is told."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def checked(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "constraints.py"), "--check"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_every_package_of_the_images_is_pinned(tmp_path: Path) -> None:
    done = checked(ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "images").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    pinned = (ROOT / "images" / "constraints.txt").read_text().splitlines(keepends=True)
    left = [line for line in pinned if not line.startswith(("tzdata==", "websockets==", "async-timeout=="))]
    (tmp_path / "images" / "constraints.txt").write_text("".join(left))
    done = checked(tmp_path)
    assert done.returncode == 1
    for name, by in (("tzdata", ""), ("websockets", "pyproject.toml"), ("async-timeout", "valkey")):
        assert f"{name}, which {by}" in done.stderr
    assert len(done.stderr.splitlines()) == 3
