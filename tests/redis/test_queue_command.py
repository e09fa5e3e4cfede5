"""``webgym queue`` on a real server, found by a run's folder or named."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from webgym.broker import BrokerConfig, EmbeddedBroker, connect
from webgym.commands.queue import QueueCommand
from webgym.errors import BrokerError, OutputError, UsageError
from webgym.keys import Keys
from webgym.protocol import EpisodeTask
from webgym.queue import SyncTaskQueue
from webgym.run.whereabouts import whereabouts_file
from webgym.rundir import RunDirectory
from webgym.spec import Redis

MANIFEST = """\
apiVersion: webgym.io/v1alpha1
kind: WebGymRun
metadata: {name: a}
spec:
  task: {name: miniwob.click-button}
  stop: {steps: 10}
"""

Call = Callable[..., str]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def called(*argv: object) -> str:
        command = QueueCommand()
        parser = argparse.ArgumentParser()
        command.configure(parser)
        assert command.run(parser.parse_args([str(a) for a in argv])) == 0
        return capsys.readouterr().out

    return called


@pytest.fixture
def queue(config: BrokerConfig, keys: Keys) -> SyncTaskQueue:
    queue = SyncTaskQueue(connect(config), keys, max_attempts=1)
    queue.add(EpisodeTask(f"train-{i}", "miniwob.click-button") for i in range(5))
    queue.add([EpisodeTask("evaluate-0", "miniwob.click-link", purpose="evaluate", priority=1e6)])
    queue.lease("worker-0.1", 1, 60.0)
    queue.lease("worker-0.1", 1, 60.0)
    queue.fail("train-0", 1, "the page crashed", "page")
    return queue


def show(call: Call, *where: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call(*where, "--json"))
    return found


def test_a_runs_folder_finds_its_queue_while_it_lasts(
    call: Call, queue: SyncTaskQueue, config: BrokerConfig, keys: Keys, tmp_path: Path
) -> None:
    path = tmp_path / "runs" / "a-1"
    with RunDirectory.create(path, keys.uid) as directory:
        directory.manifest.write_text(MANIFEST)
        with pytest.raises(OutputError, match="a-1 is over"):
            call(path)
        with whereabouts_file(directory, Redis(), config.url, keys.uid):
            found = show(call, path)
            assert found["counts"] == {"queued": 4, "leased": 1, "done": 0, "dead": 1}
            assert found["purposes"]["evaluate"] == {"queued": 0, "leased": 1, "done": 0, "dead": 0}
            assert [row["episode"] for row in found["queued"]] == [f"train-{i}" for i in range(1, 5)]
            (leased,) = found["leased"]
            assert (leased["episode"], leased["worker"]) == ("evaluate-0", "worker-0.1")
            assert 0 < leased["left_seconds"] <= 60
            assert leased["held_seconds"] >= 0
            (dead,) = found["dead"]
            assert dead["reasons"][0]["reason"] == "the page crashed"
            text = call(path, "--limit", 2)
            assert "4 queued, 1 leased, 0 done, 1 dead" in text
            assert "queued (the first 2; 2 more: --limit)" in text
            assert (
                "evaluate-0  miniwob.click-link (evaluate)  priority 1e+06  attempt 1  by worker-0.1" in text
            )
            assert "attempt 1 on worker-0.1: the page crashed (page)" in text
        with pytest.raises(OutputError, match="a-1 is over"):
            call(path)
    with pytest.raises(OutputError, match="no such folder"):
        call(tmp_path / "none")


def test_a_killed_runs_file_does_not_mislead(call: Call, keys: Keys, tmp_path: Path) -> None:
    with EmbeddedBroker() as broker, RunDirectory.create(tmp_path / "a", keys.uid) as directory:
        directory.manifest.write_text(MANIFEST)
        with whereabouts_file(directory, Redis(), broker.url, keys.uid):
            assert show(call, directory.path)["queued"] == []
            broker.stop()
            with pytest.raises(OutputError, match="is over"):
                call(directory.path)


def test_priorities_are_moved_and_the_dead_requeued(
    call: Call, queue: SyncTaskQueue, config: BrokerConfig, keys: Keys
) -> None:
    where = ("--redis-url", config.url, "--run", keys.uid)
    assert "train-4 is queued; its priority is 3 now" in call("move", "train-4", "--priority", 3, *where)
    assert "evaluate-0 is leased" in call("move", "evaluate-0", "--priority", -1, *where)
    assert [e.episode for e in queue.entries("queued", 1)] == ["train-4"]
    with pytest.raises(UsageError, match="episode nobody is neither queued nor leased nor dead"):
        call("move", "nobody", "--priority", 3, *where)
    with pytest.raises(UsageError, match="train-1 is not dead"):
        call("requeue", "train-1", *where)
    assert json.loads(call("requeue", "train-0", "--json", *where))["requeued"] == 1
    assert "0 dead episodes are queued again" in call("requeue", "--all", *where)
    assert queue.counts().queued == 5
    assert queue.counts().dead == 0


def test_a_server_is_named_together_with_a_run(call: Call, config: BrokerConfig, tmp_path: Path) -> None:
    for words in (
        ["--run", "x"],
        ["--redis-url", config.url],
        [tmp_path, "--redis-url", config.url, "--run", "x"],
    ):
        with pytest.raises(
            UsageError, match="give a run's folder, or --redis-url URL together with --run UID"
        ):
            call(*words)
    with pytest.raises(BrokerError, match="cannot be reached"):
        call("--redis-url", f"unix://{tmp_path}/none.sock", "--run", "x")
