"""What a learner starts from: nothing, a checkpoint, or what an earlier life left in Redis and in the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
import torch
from prometheus_client import REGISTRY

from webgym.broker import EmbeddedBroker
from webgym.errors import CheckpointError, UsageError
from webgym.keys import Keys
from webgym.params import SyncParameterStore
from webgym.program import ProgramContext
from webgym.protocol import EpisodeSummary
from webgym_learner.assembly import Assembly
from webgym_learner.inbox import StateLost
from webgym_learner.trainer import Trainer
from webgym_learner.validation import Verdict
from webgym_policy.network import parameters_of

Assemble = Callable[..., Assembly]


@pytest.fixture
def assemble(
    tmp_path: Path, broker: EmbeddedBroker, client: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Assemble]:
    """Makes the assembly of one life of the learner; all lives share folder and keys."""
    monkeypatch.setattr(REGISTRY, "register", lambda collector: None)  # one life a process, usually
    threads = torch.get_num_threads()
    made: list[Assembly] = []

    def begin(**learner: Any) -> Assembly:
        spec = {
            "task": {"name": "miniwob.click-test"},
            "seed": 5,
            "policy": {"hiddenSize": 8},
            "learner": {"device": "cpu", "replay": {"capacityBytes": "16Mi"}, **learner},
        }
        manifest = {
            "apiVersion": "webgym.io/v1alpha1",
            "kind": "WebGymRun",
            "metadata": {"name": "demo"},
            "spec": spec,
        }
        (tmp_path / "run.yaml").write_text(json.dumps(manifest))
        context = ProgramContext(tmp_path / "run.yaml", keys.uid, broker.url, tmp_path, "learner-0")
        made.append(Assembly(context, client))
        return made[-1]

    yield begin
    for assembly in made:
        assembly.close()
    torch.set_num_threads(threads)


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def counted(index: int) -> EpisodeSummary:
    return EpisodeSummary(
        episode=f"train-{index:08d}", attempt=1, task="t", seed=1, purpose="train", success=True, reward=1.0,
        steps=3, seconds=0.5, version=1, epsilon=0.1, worker="w", outcome="terminated",
    )  # fmt: skip


def test_a_fresh_run_begins_with_the_seeds_weights(assemble: Assemble) -> None:
    assembly = assemble()
    assert assembly.saved(resume=False) is None
    parts = assembly.parts(None)
    assert (parts.generation, parts.counters.version, parts.dqn.updates) == (1, 0, 0)
    assert parts.schedule.run_seed == 5
    assert parts.schedule.state()["train"] == 0
    assert same(parameters_of(parts.dqn.online), assembly.initial_weights())
    assert not same(assembly.initial_weights(), parameters_of(assembly.parts(None, seed=6).dqn.online))


def test_each_life_is_a_generation_and_none_deals_what_another_dealt(
    assemble: Assemble, client: redis.Redis, keys: Keys
) -> None:
    first = assemble()
    assert first.parts(None).generation == 1
    first.ledger.add([counted(9)])
    first.close()
    client.hset(keys.control, "cursors", json.dumps({"train": 4, "validate": 7}))
    parts = assemble().parts(None)
    assert parts.generation == 2
    assert parts.schedule.state() == {"train": 10, "validate": 7, "evaluate": 0, "collect": 0}


def test_a_server_that_forgot_the_run_gives_no_generation_twice(
    assemble: Assemble, client: redis.Redis, keys: Keys
) -> None:
    for _ in range(3):
        last = assemble()
        parts = last.parts(None)
        last.close()
    assert parts.generation == 3
    parts.counters.version = 5
    trainer = Trainer(parts)
    trainer.publish()
    trainer.checkpoint()
    client.delete(*client.keys(keys.everything))
    with pytest.raises(StateLost, match="has forgotten this run"):
        parts.inbox.check()
    again = assemble()
    assert again.parts(again.saved(resume=False)).generation == 4
    # Where control alone is lost, what was published tells.
    client.hdel(keys.control, "generation")
    SyncParameterStore(client, keys).publish(9, 6, {"w": np.zeros(1, np.float32)}, last.schema.hash)
    assert assemble().parts(None).generation == 7


def test_going_on_from_a_checkpoint(assemble: Assemble, client: redis.Redis, keys: Keys) -> None:
    first = assemble()
    with pytest.raises(CheckpointError, match="no checkpoint"):
        first.saved(resume=True)
    parts = first.parts(None)
    parts.counters.steps, parts.counters.version, parts.dqn.updates = 100, 6, 40
    parts.schedule.deal("train", 30)
    parts.rng.random(7)
    Trainer(parts).checkpoint()
    expected = parts.rng.random()
    # Updates after its last checkpoint are lost, and counted; versions do not come again.
    first.recorder.write({"steps": 130, "updates": 55, "version": 8, "seconds": 21.5})
    first.recorder.close()
    client.hset(keys.progress, "version", "9")
    second = assemble()
    saved = second.saved(resume=False)
    assert saved is not None
    assert saved.step == 100
    again = second.parts(saved)
    assert (again.counters.steps, again.dqn.updates, again.counters.lost_updates) == (100, 40, 15)
    assert again.counters.version == 9
    assert again.schedule.state()["train"] == 30
    assert again.rng.random() == expected
    assert same(parameters_of(again.dqn.online), parameters_of(parts.dqn.online))
    assert again.counters.training_seconds == 21.5
    assert again.saved_at == saved.path
    client.hset(keys.progress, mapping={"updates": "nonsense"})
    assert second.last_progress("updates") == second.last_progress("unheard of") == 0.0


def test_episodes_after_the_checkpoint_go_on_counting(assemble: Assemble) -> None:
    first = assemble()
    parts = first.parts(None)
    parts.counters.steps, parts.counters.episodes = 6, 2
    first.ledger.add([counted(0), counted(1)])
    Trainer(parts).checkpoint()
    first.ledger.add([counted(2), replace(counted(3), outcome="fault", steps=0, success=False)])
    first.recorder.write({"updates": 5, "lost_updates": 2})
    first.close()
    for _ in range(2):  # also where the successor dies before it has a checkpoint of its own
        second = assemble()
        counters = second.parts(second.saved(resume=False)).counters
        assert (counters.episodes, counters.steps, counters.faults) == (4, 9, 1)
        assert counters.lost_updates == 7
        second.close()


def test_episodes_count_on_where_there_is_no_checkpoint_yet(assemble: Assemble) -> None:
    first = assemble()
    first.parts(None)
    first.ledger.add([counted(0), counted(1)])
    first.recorder.write({"updates": 5})
    first.close()
    counters = assemble().parts(None).counters
    assert (counters.episodes, counters.steps, counters.lost_updates, counters.version) == (2, 6, 5, 0)


def test_a_damaged_checkpoint_is_passed_over_aloud(
    assemble: Assemble, client: redis.Redis, keys: Keys, tmp_path: Path
) -> None:
    first = assemble()
    parts = first.parts(None)
    trainer = Trainer(parts)
    for step in (10, 20):
        parts.counters.steps = step
        trainer.checkpoint()
    first.checkpoints.mark(20, 0.5, Verdict(3, 9, 10, False).state())
    first.close()
    acting = tmp_path / "checkpoints" / "step-20" / "acting.npz"
    content = bytearray(acting.read_bytes())
    content[len(content) // 2] ^= 1  # its size stays
    acting.write_bytes(content)

    def told() -> list[str]:
        lines = client.lrange(keys.notices, 0, -1)
        client.delete(keys.notices)
        return [json.loads(line) for line in lines]

    for which in ("latest", "best"):
        weights = assemble().acting_weights(which)
        assert weights.checkpoint == tmp_path / "checkpoints" / "step-10"
        assert weights.origin == "latest"
        lines = told()
        assert lines
        assert all("step-20" in line and "step-10 is used in its stead" in line for line in lines)

    again = assemble(checkpoint={"keep": 1})
    saved = again.saved(resume=True)
    assert saved is not None
    assert saved.step == 10
    assert [line.partition(" is damaged")[0].rpartition("/")[2] for line in told()] == ["step-20"]
    assert json.loads(client.hget(keys.control, "checkpoint") or b"") == str(saved.path)
    parts = again.parts(saved)
    assert parts.validation is not None
    assert parts.validation.best is None
    [line] = told()
    assert "best" in line
    # What is written next is the newest, and is kept although the damaged one has a higher number.
    Trainer(parts).checkpoint()
    assert again.checkpoints.steps() == [10]
    assert again.checkpoints.mark(10, 0.1)


def test_a_checkpoint_of_another_make_is_one_line(assemble: Assemble) -> None:
    assembly = assemble()
    parts = assembly.parts(None)
    parts.counters.unheard_of = 3  # type: ignore[attr-defined]
    Trainer(parts).checkpoint()
    saved = assembly.saved(resume=True)
    with pytest.raises(CheckpointError, match="cannot be resumed from"):
        assembly.parts(saved)


def test_the_weights_of_the_latest_the_best_or_any_checkpoint(assemble: Assemble, tmp_path: Path) -> None:
    assembly = assemble()
    with pytest.raises(CheckpointError):
        assembly.acting_weights("best")
    parts = assembly.parts(None)
    trainer = Trainer(parts)
    weights = {}
    for step in (10, 20):
        parts.counters.steps = step
        with torch.no_grad():
            for parameter in parts.dqn.acting.parameters():
                parameter += 1.0
        weights[step] = parameters_of(parts.dqn.acting)
        trainer.checkpoint()
    path = tmp_path / "checkpoints"
    # Before any was judged, the best is the latest.
    for which in ("best", "latest"):
        assert assembly.acting_weights(which).checkpoint == path / "step-20"
    assembly.checkpoints.mark(10, 0.9)
    for which, step in (("best", 10), ("latest", 20), (str(path / "step-10"), 10)):
        found = assembly.acting_weights(which)
        assert (found.origin, found.checkpoint) == (which, path / f"step-{step}")
        assert found.steps == step
        assert same(dict(found.arrays), weights[step])
    with pytest.raises(CheckpointError):
        assembly.acting_weights(str(path / "step-30"))


@pytest.mark.parametrize(
    ("replay", "words"),
    [
        ({"capacityBytes": "1Mi"}, ("600 have to fit", "raise it to ")),
        ({"capacityBytes": "16Mi", "minTransitions": 100_000}, ("200000 have to fit",)),
    ],
)
def test_a_replay_that_could_never_fill_is_refused(
    assemble: Assemble, replay: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError) as caught:
        assemble(replay=replay).parts(None)
    message = str(caught.value)
    assert message.startswith("spec.learner.replay.capacityBytes: ")
    for word in words:
        assert word in message
    enough = message.rpartition(" ")[2]
    assert assemble(replay={**replay, "capacityBytes": enough}).parts(None).generation >= 1
