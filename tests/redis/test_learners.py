"""The learner's program with two learners: it trains, one that dies takes nobody's work along, divergence ends both."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import redis

from webgym.broker import EmbeddedBroker
from webgym.experience import ExperienceReader
from webgym.keys import Keys
from webgym.program import ProgramContext
from webgym.protocol import TransitionBatch
from webgym.rundir import read_json_lines
from webgym.schema import Schema, observation_schema
from webgym.scripts import ScriptCaller, load_script
from webgym.spec import RunSpec
from webgym_learner.checkpoint import CheckpointStore

SPEC: dict[str, Any] = {
    "task": {"name": "miniwob.click-test"},
    "policy": {"hiddenSize": 8, "exploration": {"warmupSteps": 1}, "maxStaleness": 0},
    "learner": {
        "replicas": 2,
        "device": "cpu",
        "batchSize": 16,
        "replay": {"minTransitions": 32, "capacityBytes": "32Mi"},
        "replayRatio": {"max": 8},
        "checkpoint": {"intervalSeconds": 1},
    },
    "evaluation": {"episodes": 0},
}
SCHEMA = observation_schema(RunSpec.model_validate(SPEC).observation)
STEPS = 8


def episode(number: int, schema: Schema = SCHEMA, reward: float = 1.0) -> TransitionBatch:
    rng = np.random.default_rng(number)
    return TransitionBatch(
        episode=f"train-{number:08d}", attempt=1, task="t", first_sequence=0, worker="w", generation=1,
        observations={
            name: np.ones((STEPS + 1, *spec.shape), spec.dtype)
            if name.endswith("mask")
            else (rng.integers(0, 256, (STEPS + 1, *spec.shape)) / 256).astype(spec.dtype)
            for name, spec in schema.fields().items()
        },
        obs_index=np.arange(STEPS, dtype=np.int32), next_index=np.arange(1, STEPS + 1, dtype=np.int32),
        action=rng.integers(0, schema.actions, STEPS).astype(np.int32),
        reward=np.full(STEPS, reward, np.float32), discount=np.full(STEPS, 0.9, np.float32),
        priority=np.ones(STEPS, np.float32), version=np.ones(STEPS, np.int64),
    )  # fmt: skip


def push(client: redis.Redis, keys: Keys, batches: list[TransitionBatch]) -> None:
    arguments: list[Any] = [50_000]
    for one in batches:
        arguments += (f"{one.episode}/1/0+{len(one)}", len(one), one.encode(SCHEMA))
    names = (keys.experience, keys.experience_backlog, keys.experience_seen)
    ScriptCaller(client)(load_script("experience_push"), names, arguments)


def test_each_episode_falls_to_one_learner_and_comes_once(client: redis.Redis, keys: Keys) -> None:
    readers = [ExperienceReader(client, keys, SCHEMA, rank=rank, ranks=3) for rank in range(3)]
    push(client, keys, [episode(number) for number in range(30)])
    late = episode(7)
    # The same again, cut differently: nobody but the learner that has the episode can know that it came before.
    push(client, keys, [late.part(0, 5), *(episode(number) for number in range(30, 40))])
    # As an older writer has it.
    client.xadd(keys.experience, {"n": STEPS, "batch": episode(50).encode(SCHEMA)})
    client.incrby(keys.experience_backlog, STEPS)
    got: list[set[str]] = []
    for reader in readers:
        read = [*reader.read(16), *reader.read(16, block_ms=50), *reader.read(100)]
        reader.ack([id for id, _ in read])
        names = [batch.episode for _, batch in read]
        assert len(names) == len(set(names))
        got.append(set(names))
    assert set.union(*got) == {episode(number).episode for number in (*range(40), 50)}
    assert sum(map(len, got)) == 41
    assert min(map(len, got)) > 3
    assert sum(reader.duplicates for reader in readers) == 5
    assert readers[0].backlog() == client.xlen(keys.experience) == 0


class Learners:
    """The program as ``webgym run`` starts it."""

    def __init__(self, out: Path, broker: EmbeddedBroker, keys: Keys) -> None:
        manifest = {"apiVersion": "webgym.io/v1alpha1", "kind": "WebGymRun", "metadata": {"name": "demo"}}
        (out / "run.yaml").write_text(json.dumps({**manifest, "spec": SPEC}))
        self.out = out
        self.word = out / "learner-0.last-word"
        self._context = ProgramContext(
            out / "run.yaml", keys.uid, broker.url, out, "learner-0", termination_log=self.word
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        environ = {**os.environ, **self._context.environ()}
        with (self.out / "learner-0.log").open("ab") as log:
            command = [sys.executable, "-m", "webgym", "learner", *arguments]
            self.process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)

    def until(self, condition: Callable[[], Any], seconds: float = 240.0) -> Any:
        end = time.monotonic() + seconds
        while not (value := condition()):
            assert self.process is not None
            assert self.process.poll() is None, (self.out / "learner-0.log").read_text()
            assert time.monotonic() < end, (self.out / "learner-0.log").read_text()
            time.sleep(0.02)
        return value

    def updates(self) -> int:
        lines = list(read_json_lines(self.out / "metrics.jsonl"))
        return int(lines[-1]["updates"]) if lines else 0

    def end(self, seconds: float) -> int:
        assert self.process is not None
        return self.process.wait(seconds)


@pytest.fixture
def learners(tmp_path: Path, broker: EmbeddedBroker, keys: Keys) -> Iterator[Learners]:
    made = Learners(tmp_path, broker, keys)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


@pytest.mark.long
def test_a_learner_that_dies_and_one_that_diverges(
    learners: Learners, client: redis.Redis, keys: Keys
) -> None:
    push(client, keys, [episode(number) for number in range(20)])
    learners.start()
    learners.until(lambda: learners.updates() >= 50)
    assert learners.process is not None
    (other,) = psutil.Process(learners.process.pid).children()
    assert int(client.get(keys.experience_backlog) or 0) == 0
    other.send_signal(signal.SIGKILL)
    killed_at = time.monotonic()
    assert learners.end(120) == 1
    assert time.monotonic() - killed_at < 90
    assert "learner-1 ended: killed by SIGKILL" in learners.word.read_text()
    store = CheckpointStore(learners.out / "checkpoints", SCHEMA.hash)
    first = store.latest()
    assert first.state["dqn"]["updates"] >= 50

    learners.start("--resume")
    push(client, keys, [episode(number) for number in range(20, 40)])
    learners.until(lambda: learners.updates() > first.state["dqn"]["updates"] + 20)
    # So large that an error of it is beyond what a float32 can hold.
    push(client, keys, [episode(number, reward=(-1) ** number * 3e38) for number in range(40, 44)])
    assert learners.end(120) == 4
    word = learners.word.read_text()
    assert "not finite at update" in word
    assert "learner.learningRate" in word
    last = store.latest()
    assert last.state["dqn"]["updates"] >= first.state["dqn"]["updates"]
    assert all(np.isfinite(array).all() for array in last.arrays["online"].values())
    assert not [p for p in psutil.process_iter() if p.ppid() == learners.process.pid]


def test_one_that_waits_for_the_others_can_be_asked_to_end(
    learners: Learners, client: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pods have it, whose others may be a long time in coming."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }.items():
        monkeypatch.setenv(name, value)
    learners.start()
    learners.until(lambda: client.hget(keys.control, "phase") == b'"train"')
    assert learners.process is not None
    learners.process.terminate()
    assert learners.end(120) == 0
