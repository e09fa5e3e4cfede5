"""Benches at their smallest, on real browsers: they measure, lose nothing, and say what they must."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from webgym import cli
from webgym_workers.benches.local_pages import LOCAL_PAGES
from webgym_workers.frames.display import display_obstacle


def measured(capsys: pytest.CaptureFixture[str], tmp_path: Path, *arguments: str) -> dict[str, object]:
    assert cli.main(["bench", *arguments, "--json", "--out", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] >= 1
    assert found["machine"]["cores"] >= 1
    return dict(found)


def test_steps(chromium: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if obstacle := display_obstacle():
        pytest.skip(obstacle)
    found = measured(capsys, tmp_path, "steps", "--browsers", "1", "--rounds", "1", "--seconds", "0.3")
    assert found["ratio"] > 0  # type: ignore[operator]
    assert found["interactions_per_minute"] > 0  # type: ignore[operator]
    assert {row["lost"] for row in found["rows"]} == {0}  # type: ignore[attr-defined]
    assert found["ratio_by_page"].keys() == set(LOCAL_PAGES)  # type: ignore[attr-defined]


def test_scale(chromium: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = measured(capsys, tmp_path, "scale", "--browsers", "1,2", "--seconds", "0.5", "--latency-ms", "20")
    assert found["per_second"].keys() == {"1", "2"}  # type: ignore[attr-defined]
    assert (found["failed"], found["alive"]) == (0, {"1": 1, "2": 2})


@pytest.mark.long
def test_soak(chromium: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = measured(capsys, tmp_path, "soak", "--resets", "60", "--browsers", "1", "--no-frames")
    assert (found["resets"], found["failed"], found["recycles"], found["zombies"]) == (60, 0, 0, 0)
    assert found["left_in_shared_memory"] == found["left_in_temporary_folders"] == 0
    assert isinstance(found["mb_per_1000_resets"], float)


@pytest.mark.long
def test_train(chromium: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ("train", "--task", "click-test", "--seconds", "10", "--episodes", "10")
    found = measured(capsys, tmp_path, *options)
    assert found["success"] >= 0.8  # type: ignore[operator]
    assert 0 < found["seconds"] <= 12  # type: ignore[operator]
    assert found["steps"] > 0  # type: ignore[operator]
    # A second time it is only looked up.
    assert measured(capsys, tmp_path, *options) == found
