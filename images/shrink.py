"""Remove from an environment what no program of ours needs: tests of packages, tools for builds, symbols for debuggers.

python3 images/shrink.py /opt/webgym
python3 images/shrink.py /opt/webgym --headers    keeps PyTorch's headers, which torch.compile builds with
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

UNUSED = (
    "torch/test",
    # selenium comes with miniwob, of which nothing but the pages is used; these programs fetch browsers.
    *(f"selenium/webdriver/common/{system}" for system in ("linux", "macos", "windows")),
)
KEPT_PROGRAMS = {"torch_shm_manager"}
"""Of torch/bin: what shares tensors between processes. The others are tests and protoc."""


def main(environment: Path, *options: str) -> None:
    """Remove and strip."""
    (packages,) = environment.glob("lib/python3*/site-packages")
    unused = [packages / name for name in UNUSED]
    if "--headers" not in options:
        unused.append(packages / "torch" / "include")
    unused += [folder for folder in packages.rglob("tests") if folder.is_dir()]
    for folder in unused:
        shutil.rmtree(folder, ignore_errors=True)
    for program in (packages / "torch" / "bin").glob("*"):
        if program.is_file() and program.name not in KEPT_PROGRAMS:
            program.unlink()
    libraries = [str(path) for path in (packages / "torch" / "lib").glob("*.so")]
    if libraries:
        # Names of functions that nobody links to. Those that are linked to stay.
        subprocess.run(["strip", "--strip-unneeded", *libraries], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
