"""``webgym report``: a run's folder as one page to show a colleague, with the pictures it needs."""

from __future__ import annotations

import argparse
import base64
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym.errors import OutputError

if TYPE_CHECKING:
    from webgym.rundir import RunDirectory
    from webgym_learner.filmstrip import Film

__all__ = ["ReportCommand", "render_report", "write_report"]

_TEMPLATE = "report.html.j2"


class ReportCommand:
    """Write the report of a run."""

    name = "report"
    help = "write a run's learning curve, film strip, report.html and summary.json anew from what it recorded"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("directory", type=Path, metavar="RUN_DIR", help="folder of a run")
        parser.add_argument("--quiet", action="store_true", help="do not say where it is")

    def run(self, args: argparse.Namespace) -> int:
        """Write it; exit code 2 if that is no run's folder."""
        from webgym.rundir import RunDirectory

        path = write_report(RunDirectory.open(args.directory))
        if not args.quiet:
            print(path)
        return 0


def write_report(directory: RunDirectory) -> Path:
    """Write ``learning_curve.png``, ``film.png`` (if there is a film), ``report.html`` and ``summary.json``.

    Works with whatever a run has left: without an evaluation, without a single episode, without metrics.

    Returns:
        The page.

    Raises:
        OutputError: the folder cannot be written.
    """
    from webgym.run.summary import compose_summary
    from webgym.rundir import read_json_lines, write_atomic, write_json
    from webgym_learner.filmstrip import draw_strip, load_film
    from webgym_learner.plots import DARK, LIGHT, curve_of, draw_learning_curve

    summary = compose_summary(directory)
    curve = curve_of(list(read_json_lines(directory.metrics)), summary["evaluation"])
    light, dark = draw_learning_curve(curve, LIGHT), draw_learning_curve(curve, DARK)
    manifest = directory.manifest.read_text(encoding="utf-8", errors="replace")
    film = load_film(directory.path / "film", _scale_factor(manifest))
    page = directory.path / "report.html"
    try:
        write_json(directory.summary, summary)
        write_atomic(directory.path / "learning_curve.png", light)
        if film is not None:
            write_atomic(directory.path / "film.png", draw_strip(film))
        write_atomic(page, render_report(summary, light, dark, film, manifest))
    except OSError as e:
        raise OutputError(f"the report cannot be written to {directory.path}: {e.strerror or e}") from e
    return page


def _scale_factor(manifest: str) -> float:
    """Pixels per CSS pixel in the film, from the manifest's text; 1 if it does not say."""
    from webgym.errors import WebGymError
    from webgym.manifest import parse_manifest

    try:
        return float(parse_manifest(manifest).spec.browser.device_scale_factor)
    except WebGymError:
        return 1.0


@dataclass(frozen=True)
class Figure:
    """One number of the page's head."""

    label: str
    value: str
    note: str = ""


def figures_of(summary: Mapping[str, Any]) -> list[Figure]:
    """The numbers that matter, in words; those not known are left out."""
    found: list[Figure] = []
    evaluation = summary.get("evaluation") or {}
    success = evaluation.get("success")
    if isinstance(success, int | float):
        interval = evaluation.get("interval")
        note = f"{evaluation.get('episodes', 0):,} unseen seeds"
        if isinstance(interval, list) and len(interval) == 2:
            note += f"; 95% interval {interval[0]:.3f}–{interval[1]:.3f}"
        found.append(Figure("success", f"{success:.3f}", note))
    untrained = (evaluation.get("baseline") or {}).get("success")
    if isinstance(untrained, int | float):
        found.append(Figure("untrained network", f"{untrained:.3f}", "the same network before training"))
    if summary.get("training_seconds"):
        total = summary.get("seconds")
        note = f"of {duration(total)} in all" if isinstance(total, int | float) else ""
        found.append(Figure("training", duration(summary["training_seconds"]), note))
    rate = summary.get("steps_per_second")
    note = f"{rate:.1f} per second" if isinstance(rate, int | float) else ""
    found.append(Figure("environment steps", f"{summary.get('steps') or 0:,.0f}", note))
    found.append(Figure("episodes", f"{summary.get('episodes') or 0:,.0f}", "each counted once"))
    found.append(Figure("updates", f"{summary.get('updates') or 0:,.0f}", "gradient steps"))
    length = evaluation.get("steps_per_episode")
    if isinstance(length, int | float):
        found.append(Figure("steps per episode", f"{length:.1f}", "in the evaluation"))
    if summary.get("peak_memory_bytes"):
        found.append(
            Figure("memory", f"{summary['peak_memory_bytes'] / 1e9:.1f} GB", "at most, all processes")
        )
    return found


def duration(seconds: float) -> str:
    """``42 s``, ``3 min 5 s``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def render_report(
    summary: Mapping[str, Any], light: bytes, dark: bytes, film: Film | None, manifest: str
) -> str:
    """The page, all pictures inside it.

    Args:
        summary: of :func:`webgym.run.summary.compose_summary`.
        light: the learning curve for a light page, PNG.
        dark: the same for a dark one.
        film: an evaluation episode, if one was recorded.
        manifest: the resolved manifest, YAML.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("webgym_learner", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    evaluation = summary.get("evaluation") or {}
    tasks = evaluation.get("tasks")
    restarts = {k: v for k, v in (summary.get("restarts") or {}).items() if v}
    return environment.get_template(_TEMPLATE).render(
        name=summary.get("name") or "run",
        trained_on=", ".join(summary.get("tasks") or []),
        written=time.strftime("%d %B %Y, %H:%M"),
        ended=_ending(summary),
        good=summary.get("exit_code") in (0, None),
        figures=figures_of(summary),
        light=_data_url(light),
        dark=_data_url(dark),
        film=film,
        tasks=tasks if isinstance(tasks, Mapping) and len(tasks) > 1 else {},
        practice=summary.get("practice") or {},
        restarts=restarts,
        events=list(summary.get("events") or [])[-50:],
        faults=summary.get("faults") or 0,
        message=summary.get("message"),
        memory=summary.get("memory_trace"),
        machine=_machine(summary.get("machine") or {}),
        checkpoint=summary.get("checkpoint"),
        manifest=manifest,
    )


def _ending(summary: Mapping[str, Any]) -> str:
    reason = summary.get("stop_reason")
    if reason is None:
        return "still running, or broken off"
    reached = {"success": "stopped at its success target", "seconds": "stopped at its time budget"}
    return reached.get(
        reason, {"steps": "stopped at its step budget", "done": "finished"}.get(reason, str(reason))
    )


def _machine(machine: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("processor", str(machine.get("processor", ""))), ("cores", str(machine.get("cores", "")))]
    if machine.get("memory_bytes"):
        rows.append(("memory", f"{machine['memory_bytes'] / 1e9:.0f} GB"))
    rows += [("system", str(machine.get("system", ""))), ("Python", str(machine.get("python", "")))]
    versions = machine.get("versions")
    rows += [(str(k), str(v)) for k, v in (versions.items() if isinstance(versions, Mapping) else ())]
    return [(k, v) for k, v in rows if v]


def _data_url(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()
