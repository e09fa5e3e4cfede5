"""How fast something grows: a straight line by least squares, and growth that replaced browsers do not hide."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["Slope", "fit_slope", "stitch"]


class Slope(NamedTuple):
    """A fitted line.

    Attributes:
        slope: Of y per unit of x.
        intercept: y at x = 0.
        error: Standard error of the slope; infinite with two points. Points that depend on their neighbours, as
            samples of memory do, make it too small.
    """

    slope: float
    intercept: float
    error: float


def fit_slope(x: Sequence[float], y: Sequence[float]) -> Slope:
    """The line that fits best.

    Raises:
        ValueError: Fewer than two different ``x``, or not as many ``y``.
    """
    n = len(x)
    if n != len(y):
        raise ValueError(f"{n} x for {len(y)} y")
    if n < 2:
        raise ValueError("a slope needs two points at least")
    mean_x, mean_y = math.fsum(x) / n, math.fsum(y) / n
    spread = math.fsum((a - mean_x) ** 2 for a in x)
    if spread == 0.0:
        raise ValueError("a slope needs two different x")
    slope = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    intercept = mean_y - slope * mean_x
    rest = math.fsum((b - intercept - slope * a) ** 2 for a, b in zip(x, y, strict=True))
    return Slope(slope, intercept, math.sqrt(rest / (n - 2) / spread) if n > 2 else math.inf)


def stitch(samples: Sequence[Mapping[int, tuple[int, int]]]) -> list[int]:
    """Total memory over time as if no browser had been replaced by a fresh, smaller one.

    A browser that takes another's place begins where that one ended, so that what a leak had piled up by then still
    counts, and replacing browsers cannot pass for a mended leak.

    Args:
        samples: At each look, by slot: the process id of its browser and its bytes. A slot without a browser at the
            moment is left out, and counts as it was last.

    Returns:
        Bytes of all slots at each look.
    """
    level: dict[int, int] = {}
    base: dict[int, int] = {}
    process: dict[int, int] = {}
    totals = []
    for sample in samples:
        for slot, (pid, size) in sample.items():
            if slot not in process:
                base[slot] = 0
            elif process[slot] != pid:
                base[slot] = level[slot] - size
            process[slot] = pid
            level[slot] = base[slot] + size
        totals.append(sum(level.values()))
    return totals
