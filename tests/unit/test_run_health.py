"""When restarts are futile, when programs hang, and what they complained of: decisions without a process."""

from __future__ import annotations

import json
from pathlib import Path

from webgym.run.complaints import complaint_of, last_complaint
from webgym.run.futility import FutileEnds
from webgym.run.health import Heartbeats, Stillness, movement
from webgym.run.plan import Limits
from webgym.run.snapshot import Member, Snapshot, parse_snapshot
from webgym.run.totals import EpisodeTotals, total_episodes


def test_ends_without_progress_add_up_however_long_they_take() -> None:
    ends = FutileEnds(limit=3)
    assert [ends.ended("worker-0", 7) for _ in range(4)] == [False, False, False, True]
    assert ends.count("worker-0") == 4


def test_progress_forgives_what_was_before_and_nothing_else_does() -> None:
    ends = FutileEnds(limit=2)
    for episodes in range(50):
        assert not ends.ended("worker-0", episodes)
        assert not ends.ended("worker-0", episodes)
        assert not ends.ended("learner-0", ("train", episodes))
    assert ends.ended("worker-0", 49)
    assert not ends.ended("learner-0", ("train", 49))


def test_processes_that_share_a_name_share_the_limit() -> None:
    ends = FutileEnds(limit=2)
    assert not ends.ended("worker-0 actor", 0, times=4, alike=2)
    assert ends.ended("worker-0 actor", 0, alike=2)
    assert FutileEnds(limit=0).ended("learner-0", None)
    assert FutileEnds(limit=0).count("nobody") == 0


def test_silence_is_counted_from_the_last_word() -> None:
    hearts = Heartbeats(patience=10)
    old, other = Member("a", pid=1, time=5.0), Member("b", pid=2, time=5.0)
    assert hearts.silent([old, other], 100.0) == []
    for second in range(1, 11):
        other = Member("b", pid=2, time=5.0 + second)
        assert hearts.silent([old, other], 100.0 + second) == []
    assert hearts.silent([old, other], 111.0) == [old]
    # Another process of that name has only just spoken.
    assert hearts.silent([Member("a", pid=3, time=5.0), other], 112.0) == []


def test_a_machine_that_slept_is_given_time_to_speak() -> None:
    hearts, still = Heartbeats(patience=10), Stillness()
    member = Member("a", pid=1, time=5.0)
    assert hearts.silent([member], 100.0) == []
    assert hearts.silent([member], 5000.0) == []
    assert still.seconds("x", 100.0) == 0.0
    assert still.seconds("x", 5000.0) == 5.0
    assert still.seconds("y", 5001.0) == 0.0


def test_whoever_acts_learns_or_judges_moves() -> None:
    base = Snapshot(phase="train", numbers={"steps": 1, "updates": 2}, members=(Member("w.0", steps=9),))
    same = Snapshot(
        phase="train", numbers={"steps": 1, "updates": 2, "loss": 3}, members=(Member("w.0", steps=9),)
    )
    assert movement(base) == movement(same)
    for other in (
        Snapshot(phase="evaluate", numbers=base.numbers, members=base.members),
        Snapshot(phase="train", numbers={**base.numbers, "updates": 3}, members=base.members),
        Snapshot(phase="train", numbers={**base.numbers, "evaluated": 1}, members=base.members),
        Snapshot(phase="train", numbers=base.numbers, members=(Member("w.0", steps=10),)),
        Snapshot(phase="train", numbers=base.numbers, members=base.members, completed=1),
    ):
        assert movement(other) != movement(base)


def test_limits_in_their_order() -> None:
    limits = Limits(training=10, evaluation=20, total=100, still=30)
    assert limits.overrun("train", 9, 9, 0) is None
    assert (limits.overrun("train", 11, 11, 0) or ("",))[0] == "overrun"
    assert limits.overrun("evaluate", 11, 31, 0) is None
    assert (limits.overrun("evaluate", 21, 31, 0) or ("",))[0] == "overrun"
    assert (limits.overrun("start", 31, 31, 31) or ("",))[0] == "stuck"
    assert (limits.overrun("done", 1, 101, 31) or ("",))[0] == "deadline"
    assert Limits().overrun("train", 1e9, 1e9, 1e9) is None


def line(level: str, message: str, time: str = "2026-05-01T12:00:00.5Z") -> str:
    return json.dumps({"time": time, "level": level, "message": message})


def test_an_error_is_told_before_a_warning_and_the_last_of_its_kind() -> None:
    lines = [line("warning", "w1"), line("error", "e1"), line("error", "e2\nand more"), line("warning", "w2"),
             line("info", "i"), "no JSON", "[1]", "{}", line("error", "odd", time="yesterday")]  # fmt: skip
    assert complaint_of(lines, 0.0) == "e2 and more"
    assert complaint_of(lines[:1] + lines[3:], 0.0) == "w2"
    assert complaint_of(lines, 4e9) == ""
    assert len(complaint_of([line("error", "x" * 5000)], 0.0)) == 300


def test_a_log_that_is_not_there_complains_of_nothing(tmp_path: Path) -> None:
    assert last_complaint(tmp_path / "none.log", 0.0) == ""
    (tmp_path / "some.log").write_text("x" * 400_000 + "\n" + line("error", "full disk") + "\n")
    assert last_complaint(tmp_path / "some.log", 0.0) == "full disk"


def test_the_ledger_adds_up_each_episode_once() -> None:
    entries = [
        {"episode": "train-1", "purpose": "train", "steps": 3, "outcome": "terminated"},
        {"episode": "train-1", "purpose": "train", "steps": 3, "outcome": "terminated"},
        {"episode": "train-2", "purpose": "train", "steps": 0, "outcome": "fault"},
        {"episode": "validate-1", "purpose": "validate", "steps": 5, "outcome": "truncated"},
        {"episode": "evaluate-1", "purpose": "evaluate", "steps": 7, "outcome": "fault"},
        {"purpose": "train"},
        {"episode": "train-3", "purpose": "train", "steps": "x"},
    ]
    assert total_episodes(entries) == EpisodeTotals(episodes=2, steps=3, validation_steps=5, faults=1)


def test_what_programs_say_of_themselves() -> None:
    worker = {
        "restarts": {"actor": 2}, "steps": 4, "time": 1.5, "pid": 9,
        "pids": {"worker-0/inference-0": 11, "worker-0/actor-0": 12, "worker-0/actor-8": None},
    }  # fmt: skip
    found = parse_snapshot(
        {b"checkpoint": b'"runs/a/checkpoints/step-3"'},
        {},
        {b"worker-0": json.dumps(worker).encode()},
        {b"train_episodes": b"12", b"train_steps": b"99", b"evaluate_episodes": b"3"},
        [b'"damaged"', b"no JSON"],
    )
    assert found.completed == 15
    assert found.checkpoint == "runs/a/checkpoints/step-3"
    assert found.notices == ("damaged", "no JSON")
    [member] = found.members
    assert (member.steps, member.processes("inference"), member.processes("actor")) == (4, [11], [12])
