"""The verdict: sums and intervals, each episode once, and an end even when some never finish."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from webgym.protocol import EpisodeSummary, EpisodeTask
from webgym_learner.evaluation import Evaluation, Tally, by_task, save_film
from webgym_learner.inbox import Inbox

SUMMARY = EpisodeSummary(
    episode="e", attempt=1, task="shop", seed=3, purpose="evaluate", success=True, reward=1.0,
    steps=4, seconds=0.5, version=2, epsilon=0.0, worker="w", outcome="terminated",
)  # fmt: skip
FAULT = replace(SUMMARY, success=False, outcome="fault", reward=0.0, steps=0, seconds=0.0)


def test_a_tally_sums_up() -> None:
    failed = replace(SUMMARY, success=False, reward=-0.5, steps=10, seconds=1.5, outcome="truncated")
    report = Tally([SUMMARY, SUMMARY, failed]).report()
    assert report == {
        "success": pytest.approx(2 / 3),
        "successes": 2,
        "episodes": 3,
        "interval": [0.2077, 0.9385],
        "faults": 0,
        "steps_per_episode": 6.0,
        "reward": 0.5,
        "seconds_per_episode": pytest.approx(2.5 / 3),
    }
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_a_fault_is_a_failure_but_says_nothing_of_length() -> None:
    report = Tally([SUMMARY, FAULT]).report()
    assert (report["success"], report["episodes"], report["faults"]) == (0.5, 2, 1)
    assert (report["steps_per_episode"], report["reward"]) == (4.0, 1.0)
    only = Tally([FAULT]).report()
    assert (only["success"], only["steps_per_episode"], only["reward"]) == (0.0, None, None)


def test_without_episodes_nothing_is_known() -> None:
    report = Tally().report()
    assert (report["success"], report["episodes"], report["interval"]) == (None, 0, [0.0, 1.0])
    assert by_task(Tally()) == {}


def test_two_hundred_of_two_hundred() -> None:
    assert Tally([SUMMARY] * 200).report()["interval"] == [0.9812, 1.0]


def test_each_task_has_a_report_of_its_own() -> None:
    other = replace(SUMMARY, task="bank", success=False)
    reports = by_task(Tally([SUMMARY, other, other]))
    assert list(reports) == ["bank", "shop"]
    assert (reports["bank"]["episodes"], reports["bank"]["success"]) == (2, 0.0)
    assert reports["shop"]["success"] == 1.0


class PlayedInbox:
    """Finishes the episodes it is given, a few at each look; ``lost`` ones never."""

    def __init__(self, at_once: int = 3, lost: tuple[str, ...] = ()) -> None:
        self.added: list[EpisodeTask] = []
        self.at_once = at_once
        self.lost = lost
        self.checks = 0
        self.extra: list[EpisodeSummary] = []
        self.films: dict[str, dict[bytes, bytes]] = {}
        self.on_look: Callable[[], None] = lambda: None

    def add(self, tasks: list[EpisodeTask]) -> int:
        self.added += tasks
        return len(tasks)

    def check(self) -> None:
        self.checks += 1

    def experience(self, block_ms: int) -> list[Any]:
        assert block_ms > 0  # it is what keeps the loop from spinning
        self.on_look()
        return []

    def results(self) -> list[EpisodeSummary]:
        ready = [t for t in self.added if t.episode not in self.lost][: self.at_once]
        self.added = [t for t in self.added if t not in ready]
        done = [replace(SUMMARY, episode=t.episode, task=t.task, success=t.version == 2) for t in ready]
        extra, self.extra = self.extra, []
        return done + extra

    def film(self, episode: str) -> dict[bytes, bytes]:
        return self.films.get(episode, {})


def tasks(name: str, count: int, version: int) -> list[EpisodeTask]:
    return [EpisodeTask(f"{name}-{i}", "shop", version=version) for i in range(count)]


def evaluation(inbox: PlayedInbox, progress: list[dict[str, Any]] | None = None) -> Evaluation:
    told: list[dict[str, Any]] = [] if progress is None else progress
    return Evaluation(cast(Inbox, inbox), told.append)


def test_groups_are_played_together_and_told_apart() -> None:
    inbox, progress = PlayedInbox(), list[dict[str, Any]]()
    # An episode of training that was on its way belongs to nobody here, but it counts.
    late = replace(SUMMARY, episode="train-5", purpose="train")
    inbox.extra = [late]
    groups = {"trained": tasks("a", 7, 2), "untrained": tasks("b", 4, 1)}
    others: list[EpisodeSummary] = []
    runner = Evaluation(cast(Inbox, inbox), progress.append, others.append)
    tallies, complete = runner.run(groups, 60, lambda: False)
    assert complete
    assert others == [late]
    assert [t.episode for t in inbox.added] == []
    assert {n: (t.report()["success"], len(t.summaries)) for n, t in tallies.items()} == {
        "trained": (1.0, 7),
        "untrained": (0.0, 4),
    }
    assert progress[0]["evaluating"] == 11
    assert set(progress[0]["evaluation"]) == {"trained", "untrained"}


def test_an_episode_that_comes_twice_counts_once() -> None:
    inbox = PlayedInbox(at_once=1)
    inbox.extra = [replace(SUMMARY, episode="a-1")]
    tallies, complete = evaluation(inbox).run({"trained": tasks("a", 3, 2)}, 60, lambda: False)
    assert complete
    assert sorted(s.episode for s in tallies["trained"].summaries) == ["a-0", "a-1", "a-2"]


def test_what_has_finished_in_time_counts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [0.0]
    monkeypatch.setattr("webgym_learner.evaluation.time.monotonic", lambda: clock[0])
    inbox = PlayedInbox(lost=("a-1",))
    inbox.on_look = lambda: clock.__setitem__(0, clock[0] + 7)
    tallies, complete = evaluation(inbox).run({"trained": tasks("a", 4, 2)}, 30, lambda: False)
    assert not complete
    assert len(tallies["trained"].summaries) == 3
    assert 30 <= clock[0] <= 37
    assert "1 of 4" in caplog.text


def test_what_the_server_has_lost_is_queued_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("webgym_learner.evaluation.time.monotonic", lambda: clock[0])
    inbox = PlayedInbox(at_once=1)

    def look() -> None:
        clock[0] += 4
        if clock[0] == 8:
            inbox.added.clear()

    inbox.on_look = look
    tallies, complete = evaluation(inbox).run({"trained": tasks("a", 4, 2)}, 100, lambda: False)
    assert complete
    assert sorted(s.episode for s in tallies["trained"].summaries) == ["a-0", "a-1", "a-2", "a-3"]
    assert inbox.checks > 3


def test_a_drain_ends_it() -> None:
    asked: list[bool] = []
    tallies, complete = evaluation(PlayedInbox(1)).run(
        {"trained": tasks("a", 9, 2)}, 60, lambda: bool(asked.append(True)) or len(asked) > 2
    )
    assert not complete
    assert len(tallies["trained"].summaries) == 2


def test_no_episodes_are_done_at_once() -> None:
    assert evaluation(PlayedInbox()).run({"trained": []}, 60, lambda: False) == ({"trained": Tally()}, True)


def test_the_first_film_there_is_is_written(tmp_path: Path) -> None:
    inbox = PlayedInbox()
    assert not save_film(cast(Inbox, inbox), ["a", "b"], tmp_path / "film")
    assert not (tmp_path / "film").exists()
    inbox.films["a"] = {b"frame-0": b"no meta"}
    inbox.films["c"] = {b"meta": b'{"frames": 2}', b"frame-0": b"and no more"}
    assert not save_film(cast(Inbox, inbox), ["c"], tmp_path / "film")
    inbox.films["b"] = {b"meta": b'{"frames": 2, "goal": "x"}', b"frame-0": b"one", b"frame-1": b"two"}
    assert save_film(cast(Inbox, inbox), ["a", "b"], tmp_path / "film")
    assert sorted(p.name for p in (tmp_path / "film").iterdir()) == ["000.png", "001.png", "film.json"]
    assert (tmp_path / "film" / "001.png").read_bytes() == b"two"
    assert json.loads((tmp_path / "film" / "film.json").read_text())["goal"] == "x"
