"""What the options of benchmarks have in common."""

from __future__ import annotations

import argparse

from webgym.errors import UsageError

__all__ = ["check_counts"]


def check_counts(args: argparse.Namespace, *names: str) -> None:
    """Refuse numbers of things that are below one.

    Raises:
        UsageError: One is.
    """
    for name in names:
        if getattr(args, name) < 1:
            raise UsageError(f"--{name} must be at least 1")
