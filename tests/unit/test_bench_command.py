"""``webgym bench``: one object for machines, a table and a plot for people, from whatever part brings a benchmark."""

from __future__ import annotations

import argparse
import json
from importlib.metadata import EntryPoint
from pathlib import Path
from xml.etree import ElementTree

import pytest

from webgym import cli
from webgym.bench import BenchResult, Column
from webgym.bench.chart import bar_chart
from webgym.commands import bench as command


class Apples:
    help = "apples against pears"
    title = "Apples & pears"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--runs", type=int, default=3)

    def run(self, args: argparse.Namespace) -> BenchResult:
        print("measuring") if args.runs < 0 else None
        rows = [
            {"what": "apples", "ms": 2.0},
            {"what": "pears <old>", "ms": 31.25},
            {"what": "plums", "ms": 0.0},
        ]
        return BenchResult(
            figures={"ratio": 15.6, "median_ms": 2.0},
            runs=args.runs,
            rows=rows,
            columns=(Column("what", "fruit"), Column("ms", "median, ms", 2), Column("none", "missing")),
            plotted="ms",
            notes=("Weighed by hand.",),
        )


@pytest.fixture(autouse=True)
def benches(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        EntryPoint("apples", f"{__name__}:Apples", "webgym.benches"),
        EntryPoint("stones", "nothing_of_this_name:Stones", "webgym.benches"),
    ]
    monkeypatch.setattr(command, "_find_benches", lambda: found)


def test_json_is_one_object_and_nothing_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["bench", "apples", "--json", "--out", str(tmp_path / "new"), "--runs", "7"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["bench"], found["ratio"], found["median_ms"], found["runs"]) == ("apples", 15.6, 2.0, 7)
    assert found["machine"]["cores"] >= 1
    assert [row["what"] for row in found["rows"]] == ["apples", "pears <old>", "plums"]
    assert json.loads((tmp_path / "new" / "apples.json").read_text()) == found


def test_people_get_a_table_and_a_plot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["bench", "apples", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "| fruit       | median, ms | missing |" in out
    assert "| pears <old> |      31.25 |       – |" in out
    assert "3 runs on" in out
    assert "Weighed by hand." in out
    assert (tmp_path / "apples.md").read_text() in out
    picture = ElementTree.parse(tmp_path / "apples.svg").getroot()
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "Apples & pears" in texts
    assert "pears <old>" in texts


def test_a_part_that_is_not_installed_is_listed_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "apples against pears" in out
    assert (
        "not installed: needs nothing_of_this_name" in out.replace("\n", " ").replace("  ", " ")
        or "stones" in out
    )


def test_a_folder_that_cannot_be_made_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert cli.main(["bench", "apples", "--out", str(tmp_path / "file" / "in")]) == 2
    assert capsys.readouterr().err.startswith("webgym: cannot make ")


def test_what_was_measured_is_shown_even_where_it_cannot_be_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "apples.json").mkdir()
    assert cli.main(["bench", "apples", "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert "Weighed by hand." in out
    assert err.startswith("webgym: cannot write ")


@pytest.mark.parametrize("bars", [[], [("none", 0.0)], [("a", 1.0), ("b", 1e6)]])
def test_a_chart_is_well_formed_and_inside_its_frame(bars: list[tuple[str, float]]) -> None:
    root = ElementTree.fromstring(bar_chart("t", "u", bars))
    width = float(root.attrib["viewBox"].split()[2])
    rects = list(root.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(rects) == len(bars)
    for rect in rects:
        assert float(rect.attrib["x"]) + float(rect.attrib["width"]) < width
