"""What a benchmark is, and what it finds out."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["BENCH_GROUP", "Bench", "BenchResult", "Column"]

BENCH_GROUP = "webgym.benches"


@dataclass(frozen=True)
class Column:
    """One column of a result's table.

    Attributes:
        key: Its value's key in each row.
        title: What people read, with the unit.
        digits: Of numbers, after the point.
    """

    key: str
    title: str
    digits: int = 1


@dataclass(frozen=True)
class BenchResult:
    """What one benchmark measured.

    Attributes:
        figures: The numbers it stands for, by name, such as ``ratio``; one that was measured in several circumstances
            is itself a mapping.
        runs: How many measurements each number comes from.
        rows: Everything measured, one row for each contender, in the order of the plot.
        columns: How the rows are shown.
        plotted: Key of the column that the plot shows.
        notes: What one has to know to read it, a sentence each.
        pictures: Further plots, by file name such as ``soak.png``.
    """

    figures: Mapping[str, float | Mapping[str, float]]
    runs: int
    rows: Sequence[Mapping[str, Any]]
    columns: Sequence[Column]
    plotted: str
    notes: Sequence[str] = ()
    pictures: Mapping[str, bytes] = field(default_factory=dict)


class Bench(Protocol):
    """A benchmark; the entry point names the class, and one object of it is made without arguments.

    Attributes:
        help: One line for the list.
        title: What the table and the plot are called.
    """

    help: str
    title: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the benchmark's own arguments to its parser."""
        ...

    def run(self, args: argparse.Namespace) -> BenchResult:
        """Measure. Heavy imports belong here."""
        ...
