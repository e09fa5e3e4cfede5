"""Print what the package and some of its extras require, one requirement a line: images install that before our code.

python3 images/requirements.py worker,vision > requirements.txt
python3 images/requirements.py worker --without playwright > requirements.txt
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def main(extras: str, option: str = "", without: str = "") -> None:
    """Print the requirements of the extras, whose names are separated by commas."""
    if option not in ("", "--without"):
        raise SystemExit(f"requirements.py: unknown option {option}")
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = [project["dependencies"], *(project["optional-dependencies"][name] for name in extras.split(","))]
    for requirement in (one for some in lists for one in some):
        if re.split(r"[^\w.-]", requirement)[0] != without:
            print(requirement)


if __name__ == "__main__":
    main(*sys.argv[1:])
