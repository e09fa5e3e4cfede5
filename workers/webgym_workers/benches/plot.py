"""Plots of benches as PNG, where matplotlib is installed; it comes with the learner's extra, not with the worker's."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

__all__ = ["Lines", "line_plot"]

Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""By label: x and y of one line."""


def line_plot(
    title: str, x_label: str, panels: Sequence[tuple[str, Lines]], *, marker: str = ""
) -> bytes | None:
    """Panels one above the other with a common x axis.

    Args:
        title: Above all.
        x_label: Below the lowest.
        panels: What y is, with the unit, and its lines; dashed are those whose label begins with ``fit``.
        marker: matplotlib's, for the points.

    Returns:
        The PNG; None without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(8.0, 1.2 + 2.6 * len(panels)), layout="constrained")
    figure.suptitle(title, fontsize=12)
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (y_label, lines) in zip(axes, panels, strict=True):
        for label, (x, y) in lines.items():
            fitted = label.startswith("fit")
            axis.plot(
                x, y, "--" if fitted else "-", marker="" if fitted else marker, label=label, linewidth=1.4
            )
        axis.set_ylabel(y_label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.25)
        if len(lines) > 1:
            axis.legend(fontsize=8, frameon=False)
    axes[-1].set_xlabel(x_label)
    memory = io.BytesIO()
    figure.savefig(memory, format="png", dpi=120)
    return memory.getvalue()
