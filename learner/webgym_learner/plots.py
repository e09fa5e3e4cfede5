"""The learning curve as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["DARK", "LIGHT", "Curve", "Theme", "curve_of", "draw_learning_curve"]


@dataclass(frozen=True)
class Theme:
    """Colours of a picture."""

    paper: str
    ink: str
    faint: str
    grid: str
    accent: str
    second: str


LIGHT = Theme(
    paper="#ffffff", ink="#1c2330", faint="#6b7485", grid="#e6e9ef", accent="#2156c9", second="#c2541b"
)
DARK = Theme(
    paper="#161a22", ink="#e8ebf1", faint="#97a1b3", grid="#2a303c", accent="#7aa5ff", second="#f29a63"
)


@dataclass(frozen=True)
class Curve:
    """What is drawn; lists of one length, NaN where nothing was known."""

    steps: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """Seconds of training."""
    success: list[float] = field(default_factory=list)
    """Rolling success of greedy episodes on held-out seeds."""
    exploring: list[float] = field(default_factory=list)
    """Rolling success of training episodes, with exploration."""
    loss: list[float] = field(default_factory=list)
    untrained: float | None = None
    """Success of the untrained network."""
    final: float | None = None
    """Success of the final evaluation."""
    interval: tuple[float, float] | None = None
    """Its 95% interval."""


def curve_of(lines: Sequence[Mapping[str, Any]], evaluation: Mapping[str, Any] | None) -> Curve:
    """Pick the curve out of metrics lines and an evaluation, either of which may be missing or incomplete."""
    told = [line for line in lines if _number(line.get("steps")) == _number(line.get("steps"))]
    start = next((t for line in told if (t := _number(line.get("time"))) == t), 0.0)
    seconds = [_number(line.get("seconds", _number(line.get("time")) - start)) for line in told]
    result = evaluation or {}
    baseline = result.get("baseline")
    untrained = baseline.get("success") if isinstance(baseline, Mapping) else None
    return Curve(
        steps=[_number(line.get("steps")) for line in told],
        seconds=seconds,
        success=[_number(line.get("success")) for line in told],
        exploring=[_number(line.get("success_train")) for line in told],
        loss=[_number(line.get("loss")) for line in told],
        untrained=float(untrained) if isinstance(untrained, int | float) else None,
        final=float(result["success"]) if isinstance(result.get("success"), int | float) else None,
        interval=_interval(result.get("interval")),
    )


def _interval(value: Any) -> tuple[float, float] | None:
    if isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(v, int | float) for v in value):
        return float(value[0]), float(value[1])
    return None


def _number(value: Any) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if good else float("nan")


def draw_learning_curve(curve: Curve, theme: Theme = LIGHT) -> bytes:
    """The learning curve as PNG: success over steps and over seconds, and the loss."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 6.2), dpi=130, facecolor=theme.paper, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, height_ratios=(1.45, 1), hspace=0.06, wspace=0.06)
    top = figure.add_subplot(grid[0, :])
    _success(top, curve, curve.steps, theme, labels=True)
    _style(top, theme, "Success", "environment steps")
    left = figure.add_subplot(grid[1, 0])
    _success(left, curve, curve.seconds, theme, labels=False)
    _style(left, theme, "Success", "seconds of training")
    right = figure.add_subplot(grid[1, 1])
    _loss(right, curve, theme)
    _style(right, theme, "Loss", "environment steps")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", facecolor=theme.paper)
    return buffer.getvalue()


def _success(axes: Axes, curve: Curve, x: Sequence[float], theme: Theme, *, labels: bool) -> None:
    axes.set_ylim(-0.02, 1.04)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    if any(v == v for v in curve.exploring):
        axes.plot(x, curve.exploring, color=theme.faint, linewidth=1, alpha=0.7, label="while exploring")
    if any(v == v for v in curve.success):
        axes.plot(x, curve.success, color=theme.accent, linewidth=2.2, label="greedy, held-out seeds")
    if curve.untrained is not None:
        axes.axhline(
            curve.untrained, color=theme.faint, linestyle=":", linewidth=1.4, label="untrained network"
        )
    end = max((v for v in x if v == v), default=0.0)
    if curve.final is not None:
        low, high = curve.interval or (curve.final, curve.final)
        axes.errorbar(
            [end],
            [curve.final],
            yerr=[[max(0.0, curve.final - low)], [max(0.0, high - curve.final)]],
            fmt="o",
            color=theme.second,
            markersize=6.5,
            capsize=4,
            linewidth=1.6,
            clip_on=False,
            zorder=5,
            label=f"final evaluation: {curve.final:.3f}",
        )
    if not x and curve.final is None:
        _nothing(axes, theme)
    if labels and axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right", frameon=False, fontsize=9, labelcolor=theme.ink)


def _loss(axes: Axes, curve: Curve, theme: Theme) -> None:
    points = [(s, v) for s, v in zip(curve.steps, curve.loss, strict=True) if v == v]
    if not points:
        _nothing(axes, theme)
        return
    axes.plot(*zip(*points, strict=True), color=theme.second, linewidth=1.4)
    if all(v > 0 for _, v in points):
        axes.set_yscale("log")


def _nothing(axes: Axes, theme: Theme) -> None:
    axes.text(
        0.5,
        0.5,
        "nothing was recorded",
        transform=axes.transAxes,
        ha="center",
        va="center",
        color=theme.faint,
    )


def _style(axes: Axes, theme: Theme, title: str, below: str) -> None:
    axes.set_facecolor(theme.paper)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=theme.ink)
    axes.set_xlabel(below, fontsize=9, color=theme.faint)
    axes.tick_params(which="both", colors=theme.faint, labelsize=9, length=0)
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(theme.grid)
    axes.margins(x=0.02)
