"""What differs between the Python releases that we support, 3.11.0 and later."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "workers", "learner", "operator")


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_is_raised_inside_except_star(package: str) -> None:
    # Before 3.11.4 it would be put into a group again (https://github.com/python/cpython/issues/103590), and whoever
    # looks for its type, such as the exit code of a program, would not find it.
    found = [
        f"{path.relative_to(ROOT)}:{raised.lineno}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for tried in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(tried, ast.TryStar)
        for handler in tried.handlers
        for raised in ast.walk(handler)
        if isinstance(raised, ast.Raise)
    ]
    assert not found
