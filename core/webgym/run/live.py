"""Progress for people: a live panel on a terminal, one line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from webgym.printable import printable
from webgym.run.snapshot import Snapshot

__all__ = [
    "LinesView",
    "LiveView",
    "QuietView",
    "View",
    "choose_view",
    "progress_line",
    "render",
    "sparkline",
]

_BARS = "▁▂▃▄▅▆▇█"
_FRAMED, _WIDE_HEAD = 28, 48
"""Columns of a terminal from which on there is room for a frame, and for title and phase side by side."""
_COLUMNS = ((76, 4), (46, 2), (0, 1))
"""Columns of a terminal from which on so many figures stand side by side."""
_PHASES = {
    "start": "starting browsers",
    "train": "training",
    "evaluate": "evaluating",
    "done": "done",
    "failed": "failed",
    "drain": "stopping",
    "report": "writing the report",
}


def sparkline(values: Sequence[float], width: int) -> str:
    """Values from 0 to 1 as bars, the mean of equal stretches when there are more than fit.

    >>> sparkline([0, 0.5, 1], 10)
    '▁▅█'
    """
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = (sum(values[a:b]) / (b - a) for a, b in pairwise(edges))
    return "".join(_BARS[min(len(_BARS) - 1, max(0, int(v * len(_BARS))))] for v in means)


def clock(seconds: float) -> str:
    """``m:ss``, or ``h:mm:ss`` from an hour on."""
    whole = max(0, int(seconds))
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def _figure(value: float | None, form: str = ",.0f") -> str:
    return "–" if value is None else format(value, form)


def progress_line(snapshot: Snapshot, seconds: float) -> str:
    """The run in one line of text."""
    n = snapshot.number
    parts = [clock(seconds), _PHASES.get(snapshot.phase, snapshot.phase)]
    if snapshot.phase == "evaluate" and n("evaluated") is not None:
        parts.append(f"{_figure(n('evaluated'))}/{_figure(n('evaluating'))} episodes")
    if n("steps") is not None:
        parts += [
            f"steps {_figure(n('steps'))} ({_figure(n('steps_per_second'))}/s)",
            f"episodes {_figure(n('episodes'))}",
            f"success {_figure(snapshot.success, '.2f')}",
            f"loss {_figure(n('loss'), '.3g')}",
            f"staleness {_figure(n('staleness'), '.1f')}",
        ]
    parts.append(f"browsers {snapshot.alive}/{snapshot.browsers}")
    left = n("time_left")
    if left is not None and snapshot.phase == "train":
        parts.append(f"{clock(left)} left")
    return "  ".join(parts)


def render(
    snapshot: Snapshot,
    *,
    title: str,
    seconds: float,
    restarts: int,
    memory: int,
    history: Sequence[float],
    events: Sequence[str],
    width: int,
) -> RenderableType:
    """The panel of the live view.

    Args:
        snapshot: the run now.
        title: what is trained.
        seconds: since the command began.
        restarts: programs and browsers started anew so far.
        memory: resident bytes of all processes.
        history: success rates so far, oldest first.
        events: what a person should know, oldest first.
        width: columns of the terminal.
    """
    n = snapshot.number
    phase = Text(_PHASES.get(snapshot.phase, snapshot.phase), style="bold cyan")
    left = n("time_left") if snapshot.phase == "train" else None
    phase.append(f"  {clock(seconds)}", style="default")
    if left is not None:
        phase.append(f"  {clock(left)} left", style="dim")
    phase.no_wrap, phase.overflow = True, "ellipsis"
    name = Text(printable(title), style="bold", overflow="ellipsis", no_wrap=True)
    body: list[RenderableType] = [name, phase]
    if width >= _WIDE_HEAD:
        head = Table.grid(expand=True)
        head.add_column(ratio=1)
        head.add_column(justify="right")
        head.add_row(name, phase)
        body = [head]
    share = _share_done(snapshot, seconds)
    if share is not None:
        bar = Table.grid(expand=True)  # A bar on its own would not end its line.
        bar.add_row(ProgressBar(total=1.0, completed=share, complete_style="cyan", finished_style="cyan"))
        body.append(bar)

    success = snapshot.success
    # Before anybody has acted greedily, what is known is how exploring goes.
    line = Text("success  " if n("success") is not None else "exploring", style="dim", no_wrap=True)
    line.append(_figure(success, ".3f").rjust(6), style="bold green" if (success or 0) >= 0.95 else "bold")
    line.append("  ")
    line.append(sparkline(history, min(60, width - 24)), style="green")
    body.append(line)

    figures = Table.grid(padding=(0, 3, 0, 0))
    columns = next(count for least, count in _COLUMNS if width >= least)
    for _ in range(columns):
        figures.add_column(no_wrap=True, overflow="ellipsis")
    evaluated = f"{_figure(n('evaluated'))} of {_figure(n('evaluating'))}"
    rows = [
        ("steps", _figure(n("steps"))),
        ("steps/s", _figure(n("steps_per_second"), ".1f")),
        ("episodes", _figure(n("episodes"))),
        ("evaluated", evaluated) if snapshot.phase == "evaluate" else ("updates", _figure(n("updates"))),
        ("loss", _figure(n("loss"), ".3g")),
        ("replay", _figure(n("replay_size"))),
        ("updates/step", _figure(n("replay_ratio"), ".2f")),
        ("staleness", _figure(n("staleness"), ".1f")),
        ("browsers", f"{snapshot.alive} of {snapshot.browsers}"),
        ("restarts", f"{restarts}"),
        ("memory", f"{memory / 1e9:.1f} GB" if memory else "–"),
    ]
    cells = [Text.assemble((f"{label} ", "dim"), value) for label, value in rows]
    for start in range(0, len(cells), columns):
        figures.add_row(*cells[start : start + columns])
    body.append(figures)
    body += [
        Text(f"• {printable(event)}", style="yellow", overflow="ellipsis", no_wrap=True)
        for event in list(events)[-4:]
    ]
    if width < _FRAMED:
        return Group(*body)
    return Panel(Group(*body), border_style="dim", padding=(0, 1))


def _share_done(snapshot: Snapshot, seconds: float) -> float | None:
    n = snapshot.number
    if snapshot.phase == "evaluate":
        done, total = n("evaluated"), n("evaluating")
        return min(1.0, done / total) if done is not None and total else None
    left = n("time_left")
    trained = n("seconds") if n("seconds") is not None else seconds
    if snapshot.phase == "train" and left is not None and trained is not None and trained + left > 0:
        return min(1.0, trained / (trained + left))
    return None


class View(Protocol):
    """Where progress is shown."""

    def update(self, snapshot: Snapshot, *, restarts: int, memory: int) -> None:
        """Show the run as it is now."""

    def event(self, text: str) -> None:
        """Tell something that happened."""

    def warn(self, text: str) -> None:
        """Tell something that a person should read whatever else is shown; it ends up on stderr."""

    def close(self) -> None:
        """Show nothing more."""


class QuietView:
    """Shows nothing but warnings."""

    def update(self, snapshot: Snapshot, *, restarts: int, memory: int) -> None:
        """Nothing."""

    def event(self, text: str) -> None:
        """Nothing."""

    def warn(self, text: str) -> None:
        """Write it at once."""
        print(f"webgym: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing."""


class LinesView:
    """A line every few seconds, and one for each event."""

    def __init__(self, stream: TextIO, interval: float = 5.0) -> None:
        self._stream: TextIO | None = stream
        self._interval = interval
        self._started = time.monotonic()
        self._due = self._started
        self._phase = ""

    def update(self, snapshot: Snapshot, *, restarts: int, memory: int) -> None:
        """Write a line if one is due, or if the phase is new."""
        now = time.monotonic()
        if now < self._due and snapshot.phase == self._phase:
            return
        self._due = now + self._interval
        self._phase = snapshot.phase
        self._write(progress_line(snapshot, now - self._started))

    def event(self, text: str) -> None:
        """Write it at once."""
        self._write(f"{clock(time.monotonic() - self._started)}  {printable(text)}")

    def warn(self, text: str) -> None:
        """Write it at once."""
        self.event(text)

    def close(self) -> None:
        """Nothing to close."""

    def _write(self, line: str) -> None:
        try:
            if self._stream is not None:
                print(line, file=self._stream, flush=True)
        except OSError:  # Nobody reads any more: no reason to stop training.
            self._stream = None


class LiveView:
    """A panel that stays in place."""

    def __init__(self, title: str, console: Console) -> None:
        self._title = title
        self._console = console
        self._started = time.monotonic()
        self._events: deque[str] = deque(maxlen=20)
        self._history: list[float] = []
        self._warnings: list[str] = []
        self._greedy = False
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def update(self, snapshot: Snapshot, *, restarts: int, memory: int) -> None:
        """Draw the panel anew."""
        success = snapshot.success
        if success is not None and snapshot.phase in ("train", "evaluate"):
            greedy = snapshot.number("success") is not None
            if greedy != self._greedy:
                self._history.clear()  # Another figure: a curve through both would show a fall that never was.
                self._greedy = greedy
            self._history.append(success)
        panel = render(
            snapshot,
            title=self._title,
            seconds=time.monotonic() - self._started,
            restarts=restarts,
            memory=memory,
            history=self._history,
            events=list(self._events),
            width=self._console.width,
        )
        self._live.update(panel, refresh=True)

    def event(self, text: str) -> None:
        """Add it below the figures."""
        self._events.append(text)

    def warn(self, text: str) -> None:
        """Add it below the figures, and write it below the last panel."""
        self.event(text)
        self._warnings.append(text)

    def close(self) -> None:
        """Leave the last panel where it is."""
        self._live.stop()
        warnings, self._warnings = self._warnings, []
        for text in warnings:
            print(f"webgym: {text}", file=sys.stderr)


def choose_view(title: str, *, quiet: bool, json: bool) -> View:
    """The view that fits where the output goes. With ``json`` stdout stays free for the one object."""
    if quiet:
        return QuietView()
    stream = sys.stderr if json else sys.stdout
    if stream.isatty():
        return LiveView(title, Console(file=stream))
    return LinesView(sys.stderr)
