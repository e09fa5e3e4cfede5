"""The page that ``webgym doctor`` prints, and the same as one JSON object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from webgym_workers.doctor.finding import CheckResult, Status

if TYPE_CHECKING:
    from webgym_workers.capacity import Machine

__all__ = ["page", "summary_object", "verdict"]

_STYLES = {
    Status.OK: "green",
    Status.WARNING: "yellow",
    Status.FAILED: "bold red",
    Status.SKIPPED: "dim",
}


def page(
    results: Sequence[CheckResult], facts: Mapping[str, Any], here: Machine, browsers: int, seconds: float
) -> RenderableType:
    """The results for a person, as wide as the terminal.

    Args:
        results: In the order of the page.
        facts: From :func:`webgym.run.summary.machine_facts`.
        here: What of it we may use.
        browsers: How many a worker starts here.
        seconds: How long it all took.
    """
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for result in results:
        finding = result.finding
        style = _STYLES[finding.status]
        text = Text(finding.found, style="dim" if finding.status is Status.SKIPPED else "")
        if finding.mend:
            text.append("\nmend: ", style=style)
            text.append(finding.mend)
        table.add_row(Text(finding.status.value, style=style), Text(result.name), text)
    share = f"{here.cores:g} cores and {here.memory_bytes / 2**30:.1f} GiB to use"
    head = (
        f"{facts['processor']}, {facts['system']}; {share}: {browsers} browser{'s' if browsers != 1 else ''}"
    )
    return Group(
        Text(head, style="bold"), Text(), table, Text(), Text(f"{verdict(results)} ({seconds:.0f} s)")
    )


def verdict(results: Sequence[CheckResult]) -> str:
    """One line: whether WebGym can run here."""
    by = {status: [r.name for r in results if r.finding.status is status] for status in Status}
    parts = []
    if by[Status.FAILED]:
        parts.append(f"failed: {', '.join(by[Status.FAILED])}")
    if by[Status.WARNING]:
        parts.append(f"warnings: {', '.join(by[Status.WARNING])}")
    if not parts:
        return "All is well."
    head = "WebGym cannot run here yet" if by[Status.FAILED] else "WebGym can run here"
    return f"{head}; {'; '.join(parts)}."


def summary_object(
    results: Sequence[CheckResult], facts: Mapping[str, Any], browsers: int, seconds: float
) -> dict[str, Any]:
    """The results for a program; arguments as for :func:`page`."""
    return {
        "ok": all(result.finding.status is not Status.FAILED for result in results),
        "checks": [
            {
                **result.finding.numbers,
                "name": result.name,
                "status": result.finding.status.value,
                "found": result.finding.found,
                "mend": result.finding.mend,
                "seconds": result.seconds,
            }
            for result in results
        ],
        "browsers": browsers,
        "seconds": round(seconds, 3),
        "machine": dict(facts),
    }
