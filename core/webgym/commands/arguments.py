"""Arguments that several commands take."""

from __future__ import annotations

import argparse

__all__ = ["add_overrides"]


def add_overrides(parser: argparse.ArgumentParser, help: str) -> None:
    """``--set PATH=VALUE``, any number of times: ``overrides`` of :func:`webgym.manifest.load_manifest`."""
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE", help=help
    )
