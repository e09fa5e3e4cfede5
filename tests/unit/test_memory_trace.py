"""Where memory grows: compared, written down by a program that leaks, summed up for the report."""

from __future__ import annotations

import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from webgym import program
from webgym.commands.run import text_summary
from webgym.memory_trace import MemoryTrace, grown_places, memory_summary, trace_memory
from webgym.program import Drain, ProgramContext, run_program
from webgym.rundir import read_json_lines

A, B, C = ("/x/a.py", 1), ("/x/b.py", 2), ("/x/c.py", 3)


def test_growth_is_summed_by_place_with_the_way_that_brought_most() -> None:
    before = {(A, B): (100, 1), (C,): (50, 5), (A,): (10, 1)}
    now = {(A, B): (300, 3), (C, B): (900, 2), (C,): (40, 4), (A,): (10, 1)}
    assert grown_places(before, now) == [
        {
            "place": "/x/b.py:2",
            "grown_bytes": 1100,
            "grown_blocks": 4,
            "bytes": 1200,
            "stack": ["/x/c.py:3", "/x/b.py:2"],
        }
    ]
    # What is gone makes up for what came elsewhere at the same place.
    assert grown_places({(A, B): (500, 1)}, {(C, B): (400, 1)}) == []
    many = {((f"/x/{i}.py", i),): (i, 1) for i in range(50)}
    assert [place["grown_bytes"] for place in grown_places({}, many, limit=3)] == [49, 48, 47]


def test_places_are_named_without_the_folder_python_found_them_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/x", "/x/deep", ""])
    (found,) = grown_places({}, {(("/x/deep/er/a.py", 7),): (1, 1)})
    assert found["place"] == "er/a.py:7"


def test_a_leak_is_found_where_it_is(tmp_path: Path) -> None:
    trace = MemoryTrace("leaker", tmp_path / "memory" / "leaker-1.jsonl", quiet=0.0, interval=0.05)
    trace.start()
    deadline = time.monotonic() + 60
    while not list(read_json_lines(tmp_path / "memory" / "leaker-1.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.01)
    kept = [bytes(1000) for _ in range(3000)]
    trace.stop()
    assert len(kept) == 3000
    assert not tracemalloc.is_tracing()
    summary = memory_summary(tmp_path)
    assert summary is not None
    most = summary["grown"][0]
    assert most["place"].rpartition(":")[0].endswith("test_memory_trace.py")
    assert most["grown_bytes"] > 3_000_000
    assert most["program"] == "leaker"
    assert summary["programs"][0]["all_looks_seconds"] > 0
    assert summary["programs"][0]["tracer_bytes"] > 0


def test_a_program_that_ends_early_or_cannot_write_is_not_disturbed(tmp_path: Path) -> None:
    with trace_memory(tmp_path, "worker-0/inference"):
        assert not tracemalloc.is_tracing()  # Importing is not held up.
    assert memory_summary(tmp_path) is None
    (tmp_path / "file").touch()
    with trace_memory(tmp_path / "file", "learner-0"):
        pass


def test_programs_trace_only_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drain, "install", lambda self: None)
    monkeypatch.setattr(program, "configure_logging", lambda *args, **kwargs: None)
    context = ProgramContext(tmp_path / "run.yaml", "uid", "unix:///none", tmp_path, "worker-0")
    assert not ProgramContext.from_env(context.environ()).trace_memory
    run_program(lambda context, drain: 0, context.environ())
    assert not (tmp_path / "memory").exists()
    environment = context.environ() | {"WEBGYM_TRACE_MEMORY": "1"}
    assert ProgramContext.from_env(environment).environ()["WEBGYM_TRACE_MEMORY"] == "1"
    assert run_program(lambda context, drain: 5, environment) == 5
    assert len(list((tmp_path / "memory").glob("worker-0*.jsonl"))) == 1


def test_the_summary_names_what_grew_most() -> None:
    trace = {
        "grown": [{"place": "a.py:1", "program": "learner-0", "grown_bytes": 2_500_000, "seconds": 60.0}],
        "programs": [{"all_looks_seconds": 1.5, "tracer_bytes": 4_000_000}],
    }
    summary = {"name": "x", "stop_reason": "steps", "seconds": 1.0, "out": "out", "memory_trace": trace}
    text = text_summary(summary, None)
    assert "1.5 s of CPU time for looking and 4 MB" in text
    assert "+2.50 MB in 60 s  a.py:1  (learner-0)" in text
    assert "traced" not in text_summary(summary | {"memory_trace": None}, None)
