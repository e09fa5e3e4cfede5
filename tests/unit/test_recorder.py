"""The ledger counts each episode once, whatever is killed when; metrics go to all their readers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from webgym.errors import BrokerError
from webgym.protocol import EpisodeSummary
from webgym.run.totals import EpisodeTotals, total_episodes
from webgym.rundir import read_json_lines
from webgym.telemetry import Numbers
from webgym_learner.recorder import TASK_FIGURES, EpisodeLedger, MetricsRecorder

SUMMARY = EpisodeSummary(
    episode="train-00000000", attempt=1, task="shop", seed=3, purpose="train", success=True, reward=1.0,
    steps=4, seconds=0.5, version=2, epsilon=0.1, worker="w", outcome="terminated",
)  # fmt: skip


def summary(index: int, purpose: str = "train", label: str = "", **fields: Any) -> EpisodeSummary:
    return replace(SUMMARY, episode=f"{purpose}{label}-{index:08d}", purpose=purpose, **fields)


def episodes(path: Path) -> list[str]:
    return [entry["episode"] for entry in read_json_lines(path) if "episode" in entry]


def test_each_episode_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    ledger = EpisodeLedger(path)
    first, second = summary(0), summary(1, success=False)
    assert ledger.add([first, second, first]) == [first, second]
    assert ledger.add([replace(first, attempt=2), second]) == []
    assert ledger.add([]) == []
    assert len(ledger) == 2
    ledger.close()
    lines = list(read_json_lines(path))
    assert [line["episode"] for line in lines] == [first.episode, second.episode]
    assert {k: v for k, v in lines[0].items() if k != "time"} == vars(first)
    assert lines[0]["time"] > 1.7e9


def test_a_resumed_ledger_knows_what_it_holds_and_where_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    ledger = EpisodeLedger(path)
    ledger.add([summary(7), summary(3), summary(2, "validate", "-round"), summary(0, "evaluate", "-v5g1")])
    ledger.close()
    again = EpisodeLedger(path)
    assert len(again) == 4
    assert again.next_index == {"train": 8, "validate": 3, "evaluate": 1}
    assert again.add([summary(7), summary(8)]) == [summary(8)]
    assert again.next_index["train"] == 9
    again.close()
    assert episodes(path) == [
        "train-00000007", "train-00000003", "validate-round-00000002", "evaluate-v5g1-00000000", "train-00000008",
    ]  # fmt: skip


def test_a_ledger_adds_up_also_what_an_earlier_life_wrote(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    ledger = EpisodeLedger(path)
    ledger.add(
        [summary(0), summary(1), summary(1), summary(0, "validate"), summary(2, steps=0, outcome="fault")]
    )
    ledger.close()
    again = EpisodeLedger(path)
    assert again.totals == ledger.totals == EpisodeTotals(episodes=3, steps=8, validation_steps=4, faults=1)
    again.add([summary(0), summary(3)])
    assert (again.totals.episodes, again.totals.steps) == (4, 12)
    again.close()
    assert total_episodes(read_json_lines(path)) == again.totals


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_an_episode_whose_line_a_crash_tore_is_written_again(tmp_path: Path, cut: int) -> None:
    # With one byte cut the line is whole but for its newline, and is dropped like any other torn one.
    path = tmp_path / "episodes.jsonl"
    ledger = EpisodeLedger(path)
    ledger.add([summary(0), summary(1)])
    ledger.close()
    path.write_bytes(path.read_bytes()[:-cut])
    again = EpisodeLedger(path)
    assert len(again) == 1
    assert again.next_index == {"train": 1}
    assert again.add([summary(0), summary(1)]) == [summary(1)]
    again.close()
    assert episodes(path) == ["train-00000000", "train-00000001"]


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_whatever_lies_in_the_file_the_ledger_opens_and_counts_on(tmp_path_factory: Any, junk: bytes) -> None:
    path = tmp_path_factory.mktemp("ledger") / "episodes.jsonl"
    good = json.dumps({"episode": "train-00000004", "purpose": "train"}).encode()
    path.write_bytes(good + b"\n" + junk + b"\n[1]\n{}\n" + b'{"episode": "x", "purpose": null}\n')
    ledger = EpisodeLedger(path)
    assert ledger.next_index["train"] >= 5
    assert ledger.add([summary(4)]) == []
    assert ledger.add([summary(10**7)]) == [summary(10**7)]
    ledger.close()
    assert episodes(path)[-1] == "train-10000000"


def test_names_without_a_number_count_but_have_no_index(tmp_path: Path) -> None:
    ledger = EpisodeLedger(tmp_path / "episodes.jsonl")
    assert len(ledger.add([replace(SUMMARY, episode="by hand"), replace(SUMMARY, episode="train-²")])) == 2
    assert ledger.next_index == {}
    ledger.close()


class Hash:
    """The one command of Redis that is used."""

    connection_pool = redis.ConnectionPool(host="redis.example")

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}

    def hset(self, key: str, mapping: dict[str, str]) -> None:
        assert key == "progress"
        self.fields |= mapping


def test_metrics_reach_file_live_view_board_and_scrape(tmp_path: Path) -> None:
    client, registry = Hash(), CollectorRegistry()
    recorder = MetricsRecorder(tmp_path, cast(Any, client), "progress", Numbers({"run": "u"}, registry))
    recorder.progress({"evaluated": 3})
    assert client.fields == {"evaluated": "3"}
    assert list(read_json_lines(tmp_path / "metrics.jsonl")) == []
    metrics = {"time": 1.5, "steps": 100, "loss": 0.25, "success": None, "good": True, "nan": float("nan")}
    recorder.write(metrics)
    recorder.write({"steps": None, "loss": 0.5})
    recorder.close()
    lines = list(read_json_lines(tmp_path / "metrics.jsonl"))
    assert lines == [{**metrics, "nan": None}, {"steps": None, "loss": 0.5}]
    assert client.fields["loss"] == "0.5"
    assert client.fields["success"] == "null"
    assert b'webgym_loss{run="u"} 0.5' in generate_latest(registry)
    [events] = (tmp_path / "tensorboard").iterdir()
    assert b"loss" in events.read_bytes()
    assert b"good" not in events.read_bytes()


def test_each_of_several_tasks_is_told_apart(tmp_path: Path) -> None:
    client, registry = Hash(), CollectorRegistry()
    numbers = Numbers({"run": "u"}, registry, each=dict.fromkeys(TASK_FIGURES, "task"))
    recorder = MetricsRecorder(tmp_path, cast(Any, client), "progress", numbers)
    tasks = {
        "buy": {"success": 0.5, "progress": 0.1, "share": 0.75},
        "browse": {"success": None, "share": 0.25},
    }
    recorder.write({"steps": 3, "tasks": tasks})
    recorder.close()
    shown = generate_latest(registry).decode()
    assert 'webgym_task_success{run="u",task="buy"} 0.5' in shown
    assert 'webgym_task_share{run="u",task="browse"} 0.25' in shown
    assert 'task_success{run="u",task="browse"}' not in shown
    assert next(read_json_lines(tmp_path / "metrics.jsonl"))["tasks"] == tasks


def test_a_server_that_is_gone_is_one_line_and_the_numbers_are_on_disk(tmp_path: Path) -> None:
    class Gone(Hash):
        def hset(self, key: str, mapping: dict[str, str]) -> None:
            raise redis.ConnectionError("refused")

    recorder = MetricsRecorder(
        tmp_path, cast(Any, Gone()), "progress", Numbers({"run": "u"}, CollectorRegistry())
    )
    with pytest.raises(BrokerError, match=r"redis\.example.* cannot be reached"):
        recorder.write({"steps": 7})
    recorder.close()
    assert next(read_json_lines(tmp_path / "metrics.jsonl"))["steps"] == 7


def test_the_log_tells_now_and_then_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    monkeypatch.setattr("webgym_learner.recorder.time.monotonic", lambda: now)
    numbers = Numbers({"run": "u"}, CollectorRegistry())
    recorder = MetricsRecorder(tmp_path, cast(Any, Hash()), "progress", numbers)
    with caplog.at_level("INFO", logger="webgym_learner.recorder"):
        for _ in range(90):
            now += 1.0
            recorder.write({"steps": int(now) - 1000, "success": 0.123456, "loss": None})
    recorder.close()
    assert [r.getMessage() for r in caplog.records] == [f"steps {n}, success 0.1235" for n in (30, 60, 90)]
