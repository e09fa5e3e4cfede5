"""Progress for people, and the figures behind it."""

from __future__ import annotations

import io
import json
import sys

import pytest
from rich.cells import cell_len
from rich.console import Console

from webgym.run.live import LinesView, LiveView, QuietView, clock, progress_line, render, sparkline
from webgym.run.snapshot import Snapshot, parse_snapshot

TRAINING = Snapshot(
    phase="train",
    numbers={
        "steps": 2134,
        "steps_per_second": 92.34,
        "episodes": 812,
        "success": 0.97,
        "loss": 0.0123,
        "staleness": 1.24,
        "time_left": 37.0,
        "seconds": 23.0,
        "updates": 1023,
    },
)


def hashes(**members: object) -> Snapshot:
    return parse_snapshot(
        {b"phase": b'"train"', b"reason": b'""', b"generation": b"1", b"cursors": b'{"train": 3}'},
        {
            b"steps": b"2134",
            b"success": b"null",
            b"success_train": b"0.5",
            b"evaluation": b'{"a": 1}',
            b"loss": b"x",
        },
        {k.encode(): json.dumps(v).encode() for k, v in members.items()},
    )


def test_what_programs_tell_is_read_and_damage_left_out() -> None:
    snapshot = hashes(
        w1={"role": "browsers", "pid": 7, "browsers": 3, "alive": 2, "restarts": 4},
        w0={"role": "worker", "pid": 5, "restarts": {"actor": 1, "inference": 2}},
        bad=[1, 2],
    )
    assert snapshot.phase == "train"
    assert snapshot.numbers == {"steps": 2134.0, "success_train": 0.5}
    assert snapshot.success == 0.5
    assert [m.id for m in snapshot.members] == ["bad", "w0", "w1"]
    assert (snapshot.browsers, snapshot.alive) == (3, 2)
    assert snapshot.members[1].restarts_by_kind == {"actor": 1, "inference": 2}
    assert snapshot.members[2].restarts == 4
    assert parse_snapshot({}, {}, {}) == Snapshot()
    assert parse_snapshot({b"phase": b"train"}, {}, {}).phase == "train"  # Also as plain text.


def test_a_line_holds_what_one_wants_to_know() -> None:
    line = progress_line(TRAINING, 23.9)
    for part in ("0:23", "training", "steps 2,134 (92/s)", "episodes 812", "success 0.97", "0:37 left"):
        assert part in line
    evaluating = Snapshot(phase="evaluate", numbers={"evaluated": 50, "evaluating": 250})
    assert "50/250 episodes" in progress_line(evaluating, 0)
    assert "starting browsers" in progress_line(Snapshot(), 0)


def text_of(snapshot: Snapshot, **changes: object) -> str:
    width = int(str(changes.get("width", 100)))
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=True)
    arguments: dict[str, object] = {
        "title": "demo: miniwob.click-button",
        "seconds": 23.0,
        "restarts": 2,
        "memory": 2_300_000_000,
        "history": [0.0, 0.5, 1.0],
        "events": ["learner-0 ended (killed by SIGKILL) and is started again"],
        "width": 100,
    }
    console.print(render(snapshot, **{**arguments, **changes}))  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_panel_shows_figures_curve_and_events() -> None:
    text = text_of(TRAINING)
    for part in ("demo", "training", "0:37 left", "0.970", "▁", "█", "2,134", "92.3", "812", "1.2", "2.3 GB"):
        assert part in text
    assert "killed by SIGKILL" in text
    assert not any("━" in line and "success" in line for line in text.splitlines())


def test_the_panel_stands_before_anybody_has_told_anything() -> None:
    text = text_of(Snapshot(), history=[], events=[], memory=0)
    assert "starting browsers" in text
    assert "–" in text


def test_hostile_text_is_text() -> None:
    assert "[red]x[/red]" in text_of(TRAINING, title="[red]x[/red]")
    assert "\x1b" not in text_of(TRAINING, title="\x1b[31mx", events=["\x1b]0;y\a"])
    stream = io.StringIO()
    LinesView(stream).event("a\x1b[31mb\nc")
    assert stream.getvalue().endswith(r"a\x1b[31mb\nc" + "\n")


@pytest.mark.parametrize("width", [1, 9, 20, 27, 28, 40, 47, 48, 75, 76, 200])
def test_a_narrow_terminal_cuts_lines_and_breaks_none(width: int) -> None:
    lines = text_of(TRAINING, width=width).splitlines()
    assert all(cell_len(line) <= width for line in lines)
    # Title and phase, bar, success, eleven figures, one event, each on one line; two of the frame.
    assert len(lines) <= 16 + 2
    if width >= 20:
        for part in ("demo", "training", "0.970", "2,134", "92.3", "browsers", "2.3 GB"):
            assert any(part in line for line in lines), (part, lines)


def test_a_sparkline_fits_and_keeps_the_shape() -> None:
    assert sparkline([], 10) == ""
    assert sparkline([0, 0.5, 1], 10) == "▁▅█"
    line = sparkline([i / 999 for i in range(1000)], 20)
    assert len(line) == 20
    assert list(line) == sorted(line)
    assert sparkline([-1, 2, float("0.99")], 3) == "▁██"


def test_clocks() -> None:
    assert [clock(s) for s in (0, 61.9, 3600 + 62)] == ["0:00", "1:01", "1:01:02"]


def test_lines_come_every_few_seconds_and_with_each_phase() -> None:
    stream = io.StringIO()
    view = LinesView(stream, interval=1000)
    for phase in ("train", "train", "train", "evaluate"):
        view.update(Snapshot(phase=phase), restarts=0, memory=0)
    view.event("learner-0 ended")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert "training" in lines[0]
    assert "evaluating" in lines[1]
    assert "learner-0 ended" in lines[2]


def test_a_reader_that_left_does_not_stop_the_run() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    view = LinesView(Broken())
    view.update(TRAINING, restarts=0, memory=0)
    view.event("still here")


def test_a_warning_reaches_stderr_once_whatever_the_view(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    for make in (QuietView, lambda: LinesView(sys.stderr), lambda: LiveView("demo", console)):
        view = make()
        view.warn("step-9 is damaged")
        view.close()
        view.close()
        printed = capsys.readouterr()
        assert (printed.out, printed.err.count("step-9 is damaged")) == ("", 1)


def test_the_live_view_draws_and_closes() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    view = LiveView("demo", console)
    view.update(TRAINING, restarts=0, memory=0)
    view.event("learner-0 ended")
    view.update(TRAINING, restarts=1, memory=0)
    view.close()
    assert isinstance(console.file, io.StringIO)
    assert "learner-0 ended" in console.file.getvalue()
