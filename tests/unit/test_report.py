"""The summary and the report, also of runs that ended early or left damaged files."""

from __future__ import annotations

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from webgym.run.summary import compose_summary, training_rate
from webgym.rundir import JsonLinesWriter, RunDirectory, write_json
from webgym_learner.filmstrip import draw_strip, load_film
from webgym_learner.plots import Curve, curve_of, draw_learning_curve
from webgym_learner.report import duration, write_report

EVALUATION: dict[str, Any] = {
    "success": 0.995,
    "successes": 199,
    "episodes": 200,
    "interval": [0.9722, 0.9991],
    "steps_per_episode": 2.1,
    "tasks": {
        "miniwob.click-button": {
            "success": 1.0,
            "episodes": 100,
            "interval": [0.963, 1.0],
            "steps_per_episode": 2.0,
        },
        "miniwob.<b>odd</b>": {
            "success": None,
            "episodes": 0,
            "interval": [0.0, 1.0],
            "steps_per_episode": None,
        },
    },
    "baseline": {"success": 0.34, "episodes": 50, "interval": [0.22, 0.48]},
}


def metrics(count: int = 60) -> list[dict[str, Any]]:
    return [
        {
            "time": 1000.0 + i,
            "seconds": float(i),
            "steps": 90 * i,
            "episodes": 30 * i,
            "updates": 40 * i,
            "success": None if i < 5 else min(1.0, i / 30),
            "success_train": min(1.0, i / 40),
            "loss": None if i < 3 else 0.1 / i,
            "faults": 0,
        }
        for i in range(count)
    ]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    with RunDirectory.create(tmp_path / "run") as directory:
        directory.manifest.write_text("kind: WebGymRun\nmetadata: {name: <script>alert(1)</script>}\n")
    return directory


def record(run: RunDirectory, lines: list[dict[str, Any]]) -> None:
    with JsonLinesWriter(run.metrics) as writer:
        writer.write_many(list(lines))


def film(folder: Path, frames: int) -> None:
    folder.mkdir()
    for i in range(frames):
        Image.new("RGB", (160, 210), (250, 250, 200)).save(folder / f"{i:03d}.png")
    actions = [{"caption": f"click 'button {i}'", "box": [10, 20, 60, 25]} for i in range(frames - 1)]
    meta = {
        "episode": "evaluate-0",
        "task": "miniwob.click-button",
        "seed": 7,
        "goal": "Click <ok> 好",
        "success": True,
    }
    (folder / "film.json").write_text(
        json.dumps({**meta, "success": True, "actions": actions, "frames": frames})
    )


def test_a_whole_run(run: RunDirectory) -> None:
    record(run, metrics())
    write_json(run.evaluation, EVALUATION)
    film(run.path / "film", 4)
    (run.checkpoints / "step-900").mkdir(parents=True)
    (run.checkpoints / "step-5310").mkdir()
    facts = {
        "name": "demo",
        "tasks": ["miniwob.click-button"],
        "stop_reason": "success",
        "exit_code": 0,
        "seconds": 75.0,
    }
    facts |= {
        "restarts": {"learner": 1, "browser": 0},
        "events": ["learner-0 ended"],
        "peak_memory_bytes": 2.5e9,
    }
    write_json(run.summary, compose_summary(run, facts))
    page = write_report(RunDirectory.open(run.path)).read_text()
    summary = json.loads(run.summary.read_text())

    assert summary["evaluation"]["success"] == 0.995
    assert summary["steps"] == 90 * 59
    assert summary["steps_per_second"] == 90
    assert summary["training_seconds"] == 59
    assert summary["stop_reason"] == "success"
    assert summary["checkpoint"].endswith("step-5310")
    for part in ("0.995", "0.972–0.999", "0.340", "59 s", "75 s", "learner 1×", "learner-0 ended", "2.5 GB"):
        assert part in page
    assert "browser 0" not in page
    assert "click &#39;button 0&#39;" in page
    # Self-contained, and pages' words are words.
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    assert "<script>" not in page
    assert "<b>odd" not in page
    for name in ("learning_curve.png", "film.png"):
        with Image.open(run.path / name) as image:
            assert image.width > 600


def test_the_report_can_be_written_again_with_a_new_evaluation(run: RunDirectory) -> None:
    record(run, metrics())
    write_json(
        run.summary,
        compose_summary(run, {"stop_reason": "seconds", "restarts": {"worker": 2}, "name": "demo"}),
    )
    write_json(run.evaluation, EVALUATION)
    write_report(RunDirectory.open(run.path))
    summary = json.loads(run.summary.read_text())
    assert summary["evaluation"]["episodes"] == 200
    assert (summary["stop_reason"], summary["restarts"], summary["name"]) == (
        "seconds",
        {"worker": 2},
        "demo",
    )


@pytest.mark.parametrize("damage", ["nothing", "no success yet", "broken files", "no episodes"])
def test_partial_runs(run: RunDirectory, damage: str) -> None:
    if damage == "no success yet":
        record(run, [{"time": 1.0, "steps": 10, "success": None, "loss": None}])
    elif damage == "broken files":
        run.metrics.write_bytes(b'{"steps": "many", "loss": "nan"}\n\xff\n{"steps": 5')
        run.evaluation.write_text('{"success": ')
        run.summary.write_text("[]")
        (run.path / "film").mkdir()
        (run.path / "film" / "film.json").write_text("{}")
        (run.path / "film" / "000.png").write_bytes(b"no picture")
    elif damage == "no episodes":
        write_json(
            run.evaluation,
            {"success": None, "episodes": 0, "interval": [0, 1], "tasks": {}, "baseline": None},
        )
    page = write_report(RunDirectory.open(run.path)).read_text()
    assert "still running, or broken off" in page
    assert (run.path / "learning_curve.png").stat().st_size > 1000
    assert not (run.path / "film.png").exists()
    json.loads(run.summary.read_text())


def test_a_long_film_shows_its_beginning_and_its_end(tmp_path: Path) -> None:
    film(tmp_path / "film", 30)
    found = load_film(tmp_path / "film")
    assert found is not None
    assert (len(found.frames), found.left_out) == (12, 18)
    assert found.frames[0].caption == "click 'button 0'"
    assert found.frames[-1].caption == "success"
    with Image.open(BytesIO(draw_strip(found))) as strip:
        assert strip.width > 4 * 320


def test_the_node_acted_on_is_marked(tmp_path: Path) -> None:
    film(tmp_path / "film", 2)
    found = load_film(tmp_path / "film", scale=2.0)
    assert found is not None
    with Image.open(BytesIO(found.frames[0].png)) as frame:
        assert frame.getpixel((60, 39)) == (217, 84, 27)
    with Image.open(BytesIO(found.frames[1].png)) as frame:
        assert frame.getpixel((60, 39)) == (250, 250, 200)


def test_no_film_is_no_film(tmp_path: Path) -> None:
    assert load_film(tmp_path / "film") is None


def test_rates_come_from_training_seconds_or_from_times_without_the_gaps() -> None:
    assert training_rate(metrics(11)) == (10.0, 90.0)
    lines = [{"time": t, "steps": s} for t, s in ((0, 0), (5, 500), (1000, 500), (1005, 1000))]
    assert training_rate(lines) == (10.0, 100.0)
    validated = [{"time": 0, "steps": 0}, {"time": 2, "seconds": 2.0, "steps": 100, "validation_steps": 60}]
    assert training_rate(validated) == (2.0, 80.0)
    assert training_rate([]) == (None, None)
    assert training_rate([{"time": 1.0, "steps": 3}]) == (None, None)


def test_the_curve_takes_what_it_can() -> None:
    curve = curve_of([*metrics(3), {"loss": 1}], EVALUATION)
    assert curve.steps == [0, 90, 180]
    assert (curve.untrained, curve.final, curve.interval) == (0.34, 0.995, (0.9722, 0.9991))
    assert draw_learning_curve(Curve())[:4] == b"\x89PNG"


def test_durations() -> None:
    assert [duration(s) for s in (4.4, 185, 7800)] == ["4 s", "3 min 5 s", "2 h 10 min"]
