"""A learner's share of the learning: what it takes in, and batches drawn ahead while a GPU computes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from webgym.schema import Schema
from webgym.spec import RunSpec
from webgym_learner import compiling
from webgym_learner.checkpoint import CheckpointStore
from webgym_learner.dqn import DQN, DQNConfig, UpdateResult
from webgym_learner.replay import PrioritizedReplay, ReplayBatch
from webgym_learner.share import Share, anneal, updates_allowed
from webgym_learner.transfer import Transfer
from webgym_policy.network import PolicyNetwork

SCHEMA = Schema(nodes=4, texts=2, node_features=5, text_features=3, pair_features=2, goal_features=4)
SPEC = RunSpec.model_validate(
    {"task": {"name": "shop:Shop"}, "learner": {"batchSize": 16, "replay": {"minTransitions": 16}}}
)


def filled(steps: int = 60) -> PrioritizedReplay:
    replay = PrioritizedReplay(SCHEMA, 1 << 20)
    rng = np.random.default_rng(0)
    observations = {
        name: np.ones((steps + 1, *spec.shape), spec.dtype)
        if name.endswith("mask")
        else rng.random((steps + 1, *spec.shape)).astype(spec.dtype)
        for name, spec in SCHEMA.fields().items()
    }
    index = np.arange(steps)
    actions = rng.integers(0, SCHEMA.actions, steps)
    replay.add(observations, index, index + 1, actions, rng.random(steps), np.full(steps, 0.9))
    return replay


class Watched(DQN):
    """Keeps what it is trained on."""

    def __init__(self) -> None:
        super().__init__(PolicyNetwork(SCHEMA, 8), DQNConfig(device="cpu"))
        self.seen: list[ReplayBatch] = []

    def update(self, batch: ReplayBatch, moved=None, meanwhile=None) -> UpdateResult:
        assert moved is None or moved.batch is batch
        self.seen.append(batch)
        return super().update(batch, moved, meanwhile)


@pytest.mark.parametrize("ahead", [False, True])
def test_each_batch_is_drawn_once_and_its_priorities_are_set(ahead: bool) -> None:
    dqn, replay = Watched(), filled()
    share = Share(SPEC, dqn, replay, np.random.default_rng(1), ahead=ahead)
    drawn: list[ReplayBatch] = []
    sample = replay.sample

    def counted(*arguments) -> ReplayBatch:
        drawn.append(sample(*arguments))
        return drawn[-1]

    replay.sample = counted  # type: ignore[method-assign]
    results = [share.update() for _ in range(5)]
    assert dqn.updates == 5
    assert len(drawn) == 5 + ahead
    assert all(a is b for a, b in zip(dqn.seen, drawn, strict=False))
    last, slots = results[-1], dqn.seen[-1].slots
    expected = {
        int(s): (e + replay.epsilon) ** replay.alpha for s, e in zip(slots, last.td_errors, strict=True)
    }
    for slot, weight in expected.items():
        assert replay._tree.get(np.array([slot]))[0] == pytest.approx(weight, rel=1e-5)
    share.release()
    assert share._next is None


@dataclass
class Life:
    """A learner with all that its checkpoint holds."""

    dqn: DQN
    replay: PrioritizedReplay
    rng: np.random.Generator

    @classmethod
    def begin(cls, seed: int) -> Life:
        config = DQNConfig(device="cpu", average_decay=0.9, target_update_interval=7)
        replay = PrioritizedReplay(SCHEMA, 1 << 20)
        return cls(DQN(PolicyNetwork(SCHEMA, 8, seed=seed), config), replay, np.random.default_rng(seed))

    def updates(self, count: int) -> list[UpdateResult]:
        share = Share(SPEC, self.dqn, self.replay, self.rng)
        return [share.update() for _ in range(count)]

    def everything(self) -> tuple[dict[str, Any], dict[str, Any]]:
        saved, (held, replay) = self.dqn.state_dict(), self.replay.state()
        state = {"dqn": saved["state"], "replay": replay, "rng": self.rng.bit_generator.state}
        return {**saved["arrays"], "replay": held}, state


def test_a_resumed_learner_equals_one_that_was_never_interrupted_bit_for_bit(tmp_path: Path) -> None:
    """Weights, averages, moments, annealing, target's turn, draws and priorities, through the files."""
    first = Life.begin(1)
    first.replay.load_state(*filled().state())
    first.updates(13)
    store = CheckpointStore(tmp_path, SCHEMA.hash)
    store.save(13, *first.everything())
    found = store.latest()
    second = Life.begin(2)
    second.dqn.load_state_dict({"arrays": found.arrays, "state": found.state["dqn"]})
    second.replay.load_state(found.arrays["replay"], found.state["replay"])
    second.rng.bit_generator.state = found.state["rng"]
    for a, b in zip(first.updates(17), second.updates(17), strict=True):
        assert (a.loss, a.q_mean, a.grad_norm) == (b.loss, b.q_mean, b.grad_norm)
        np.testing.assert_array_equal(a.td_errors, b.td_errors)
    (ours, our_state), (theirs, their_state) = first.everything(), second.everything()
    assert our_state == their_state
    for group in ours:
        assert ours[group].keys() == theirs[group].keys()
        for name in ours[group]:
            assert ours[group][name].tobytes() == theirs[group][name].tobytes(), (group, name)


def test_a_batch_that_is_there_already_makes_the_same_update() -> None:
    batch = filled().sample(16, 0.5, np.random.default_rng(0))
    first, second = Watched(), Watched()
    moved = Transfer(torch.device("cpu")).begin(batch)
    assert moved.obs["dom"].dtype == torch.float32
    assert moved.obs["action_mask"].dtype == torch.uint8
    done: list[int] = []
    a, b = first.update(batch), second.update(batch, moved, lambda: done.append(second.updates))
    assert done == [0]  # before the weights change
    np.testing.assert_array_equal(a.td_errors, b.td_errors)
    assert (a.loss, a.grad_norm) == (b.loss, b.grad_norm)


def test_a_network_that_cannot_be_compiled_trains_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(network: PolicyNetwork, dynamic: bool):
        def forward(observation):
            raise RuntimeError("no compiler is here\nand more")

        return forward

    monkeypatch.setattr(torch, "compile", broken)
    dqn = DQN(PolicyNetwork(SCHEMA, 8), DQNConfig(device="cpu", compile="on"))
    assert dqn._online is dqn.online
    assert np.isfinite(dqn.update(filled().sample(16, 0.5, np.random.default_rng(0))).loss)
    settings = [
        compiling.wants_compiling(s, torch.device(d)) for s in ("auto", "on", "off") for d in ("cpu", "cuda")
    ]
    assert settings == [False, True, True, True, False, False]


def test_a_compiled_network_makes_the_same_update(monkeypatch: pytest.MonkeyPatch) -> None:
    # The same way through, without the minute that code generation takes.
    real = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda network, dynamic: real(network, dynamic=dynamic, backend="eager")
    )
    dqn = DQN(PolicyNetwork(SCHEMA, 8), DQNConfig(device="cpu", compile="on"))
    assert dqn._online is not dqn.online
    batch = filled().sample(16, 0.5, np.random.default_rng(0))
    plain = DQN(PolicyNetwork(SCHEMA, 8), DQNConfig(device="cpu"))
    for _ in range(2):
        assert dqn.update(batch).loss == pytest.approx(plain.update(batch).loss, rel=1e-5)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0.001, 1000))
def test_an_update_is_allowed_as_long_as_the_ratio_holds_after_it(
    updates: int, steps: int, maximum: float
) -> None:
    allowed = updates_allowed(updates, steps, maximum)
    assert (allowed > 0) == (updates + 1 <= maximum * steps)
    assert allowed == 0 or updates + allowed <= maximum * steps < updates + allowed + 1


def test_without_steps_there_are_no_updates() -> None:
    assert updates_allowed(0, 0, 1000.0) == 0
    assert updates_allowed(0, 10, 2.5) == 25
    assert updates_allowed(30, 10, 2.5) == 0


def test_the_importance_exponent_rises_to_one_and_stays() -> None:
    assert [anneal(0.4, n, 100) for n in (0, 50, 100, 10**9)] == pytest.approx([0.4, 0.7, 1.0, 1.0])
    assert anneal(1.0, 3, 10) == 1.0
    assert anneal(0.0, 0, 1) == 0.0
