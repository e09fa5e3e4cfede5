"""Print what the package and some of its extras require, one requirement a line: images install that before our code.

python3 images/requirements.py worker,vision > requirements.txt
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main(extras: str) -> None:
    """Print the requirements of the extras, whose names are separated by commas."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = [project["dependencies"], *(project["optional-dependencies"][name] for name in extras.split(","))]
    print("\n".join(requirement for one in lists for requirement in one))


if __name__ == "__main__":
    main(*sys.argv[1:])
