"""Writes images/constraints.txt: the releases that are installed here of all that images install.

python tools/constraints.py            pin what is installed here; a package that is not keeps the pin that it has
python tools/constraints.py --check    write nothing; name each package that images install and nothing pins
"""

from __future__ import annotations

import importlib.metadata
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FILE = Path("images/constraints.txt")
EXTRAS = ("worker", "learner", "operator", "vision")
"""What images are built with."""
IMAGE = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.2",
    "python_version": "3.11",
    "sys_platform": "linux",
}
"""The Python of the images, which decides what packages require; a newer one than it may be running here."""
HEAD = """\
# Releases that images are built with. Made by tools/constraints.py from those that the tests ran with; local labels of
# builds (such as +cpu) are left out, so that each image takes the build that it asks for.
"""


def pins(text: str) -> dict[str, str]:
    """Releases by canonical name."""
    lines = [line.split("==") for line in text.splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(name): release.strip() for name, release in lines}


def installed(name: str) -> importlib.metadata.Distribution | None:
    """A package of this environment; None where it has none."""
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def required(project: dict[str, list[str] | dict[str, list[str]]]) -> dict[str, str]:
    """Every package that images install, by canonical name, and what asks for it."""
    optional = project["optional-dependencies"]
    assert isinstance(optional, dict)
    roots = [*project["dependencies"], *(one for extra in EXTRAS for one in optional[extra])]
    todo = [(Requirement(text), "pyproject.toml") for text in roots]
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    while todo:
        requirement, by = todo.pop()
        name = canonicalize_name(requirement.name)
        found.setdefault(name, by)
        package = installed(name)
        for extra in ("", *requirement.extras):
            if package is None or (name, extra) in seen:
                continue
            seen.add((name, extra))
            todo += [(inner, name) for inner in wanted(package.requires or (), extra)]
    return found


def wanted(texts: Iterable[str], extra: str) -> Iterator[Requirement]:
    """The requirements that hold in an image."""
    for text in texts:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({**IMAGE, "extra": extra}):
            yield requirement


def spelling(name: str) -> str:
    """How a package writes its own name."""
    package = installed(name)
    return name if package is None else package.metadata["Name"]


def release(name: str, old: dict[str, str]) -> str:
    """What to pin a package to."""
    package = installed(name)
    return old[name] if package is None else package.version.partition("+")[0]


def main() -> int:
    """Write, or compare."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    old = pins(FILE.read_text(encoding="utf-8"))
    names = required(project)
    check = "--check" in sys.argv
    unknown = sorted(name for name in names if name not in old and (check or installed(name) is None))
    for name in unknown:
        how = (
            "run python tools/constraints.py"
            if installed(name)
            else "it is not installed here; pin it by hand"
        )
        print(f"{FILE}: {name}, which {names[name]} requires, is not pinned: {how}", file=sys.stderr)
    if check or unknown:
        return int(bool(unknown))
    lines = sorted((f"{spelling(name)}=={release(name, old)}" for name in {*names, *old}), key=str.lower)
    FILE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
