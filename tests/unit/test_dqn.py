"""The DQN update: it learns, it bootstraps as it should, it stops before it does harm, it resumes exactly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from webgym.errors import CheckpointError, ExitCode, RunError
from webgym.schema import Action, ActionKind, Observation, Schema
from webgym_learner.dqn import DQN, DivergedError, DQNConfig
from webgym_learner.replay import PrioritizedReplay, ReplayBatch
from webgym_policy.network import PolicyNetwork, infer, mask_invalid, parameters_of, to_tensors
from webgym_policy.returns import NStepAssembler, columns
from webgym_policy.selection import epsilon_greedy, greedy, masked_max

SCHEMA = Schema(nodes=8, texts=3, node_features=6, text_features=4, pair_features=3, goal_features=4)


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def random_batch(size: int = 16, seed: int = 0) -> ReplayBatch:
    rng = np.random.default_rng(seed)

    def draw() -> Observation:
        made: Observation = {}
        for name, (shape, dtype) in SCHEMA.fields().items():
            made[name] = (
                np.ones((size, *shape), dtype)
                if name.endswith("mask")
                else rng.random((size, *shape)).astype(dtype)
            )
        made["action_mask"][:, 10:] = rng.integers(0, 2, (size, SCHEMA.actions - 10))
        return made

    return ReplayBatch(
        obs=draw(),
        next_obs=draw(),
        action=rng.integers(0, 10, size),
        reward=rng.normal(size=size).astype(np.float32),
        discount=np.full(size, 0.9, np.float32),
        weight=rng.random(size).astype(np.float32),
        slots=np.arange(size),
        generations=np.arange(size),
    )


class Pages:
    """Two steps on a synthetic page: type the marked word into the marked field, then click the marked node.

    The marks are features, at random places, among noise; anything else ends the episode with nothing.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def reset(self) -> Observation:
        rng = self._rng
        self.step_index = 0
        self.field, self.button, self.word = (
            rng.integers(SCHEMA.nodes),
            rng.integers(SCHEMA.nodes),
            rng.integers(3),
        )
        self._page = SCHEMA.empty()
        for name in ("dom", "text", "pair", "goal"):
            self._page[name][...] = np.round(rng.random(self._page[name].shape) * 64) / 256
        self._page["node_mask"][:] = 1
        self._page["action_mask"][:] = 1
        self._page["dom"][:, :2] = 0
        self._page["dom"][self.field, 0] = 1
        self._page["dom"][self.button, 1] = 1
        self._page["pair"][:, self.word, 0] = 1
        self._page["goal"][0] = 0
        return {k: v.copy() for k, v in self._page.items()}

    def right(self) -> Action:
        if self.step_index == 0:
            return Action(ActionKind.TYPE, int(self.field), int(self.word))
        return Action(ActionKind.CLICK, int(self.button))

    def step(self, flat: int) -> tuple[Observation, float, bool]:
        kind, node, text = SCHEMA.decode(flat)
        self._page["goal"][0] = 1
        after = {k: v.copy() for k, v in self._page.items()}
        self.step_index += 1
        if self.step_index == 1:
            right = kind == ActionKind.TYPE and node == self.field and text == self.word
            return after, 0.0, not right
        return after, float(kind == ActionKind.CLICK and node == self.button), True


def play(pages: Pages, dqn: DQN, choose: Callable[[np.ndarray, np.ndarray], int]) -> tuple[Any, float]:
    """One episode: its observations with its transitions, and its last reward."""
    assembler = NStepAssembler(3, 0.95)
    seen, transitions, ended, reward = [pages.reset()], [], False, 0.0
    while not ended:
        q, mask = infer(dqn.acting, {k: v[None] for k, v in seen[-1].items()}), seen[-1]["action_mask"][None]
        action = choose(q, mask)
        obs, reward, ended = pages.step(action)
        best = float(masked_max(q, mask)[0])
        transitions += assembler.add(len(seen) - 1, action, reward, float(q[0, action]), best)
        seen.append(obs)
    transitions += assembler.end(terminated=True, truncated=False, final_obs_index=len(seen) - 1)
    return ({k: np.stack([o[k] for o in seen]) for k in seen[0]}, columns(transitions)), reward


def test_it_learns_to_type_the_marked_word_and_click_the_marked_node() -> None:
    rng = np.random.default_rng(0)
    pages, memory = Pages(rng), PrioritizedReplay(SCHEMA, 8 << 20)
    dqn = DQN(PolicyNetwork(SCHEMA, hidden_size=32), DQNConfig(learning_rate=3e-3, target_update_interval=50))

    def explore(q: np.ndarray, mask: np.ndarray) -> int:
        # Part of the exploration is guided, or typing the right word would be found once in 200 tries.
        if rng.random() < 0.3:
            return SCHEMA.encode(pages.right())
        return int(epsilon_greedy(q, mask, 0.3, SCHEMA, rng)[0])

    def best(q: np.ndarray, mask: np.ndarray) -> int:
        return int(greedy(q, mask, SCHEMA, rng)[0])

    def success() -> float:
        return float(np.mean([play(pages, dqn, best)[1] for _ in range(100)]))

    untrained = success()
    for episode in range(1, 1501):
        (observations, transitions), _ = play(pages, dqn, explore)
        memory.add(observations, **transitions._asdict())
        if len(memory) > 200:
            batch = memory.sample(64, 0.5, rng)
            memory.update_priorities(batch.slots, batch.generations, dqn.update(batch).td_errors)
        if episode % 250 == 0 and success() > 0.97:
            break
    assert untrained < 0.2
    assert success() > 0.95


@pytest.mark.parametrize("ended", [0, 1, 5, 15, 16])
@pytest.mark.parametrize("double", [True, False])
def test_errors_are_those_of_the_definition(double: bool, ended: int) -> None:
    dqn = DQN(PolicyNetwork(SCHEMA, seed=1), DQNConfig(double=double))
    with torch.no_grad():
        for parameter in dqn.target.parameters():
            parameter.add_(0.05)
    batch = random_batch()
    batch.discount[np.random.default_rng(ended).permutation(16)[:ended]] = 0.0
    q, q_next, values = (
        infer(dqn.online, batch.obs),
        infer(dqn.online, batch.next_obs),
        infer(dqn.target, batch.next_obs),
    )
    want = []
    for row in range(16):
        valid = np.flatnonzero(batch.next_obs["action_mask"][row])
        chooser = q_next if double else values
        best = max(valid, key=lambda a: chooser[row, a])
        goal = batch.reward[row] + batch.discount[row] * values[row, best]
        want.append(abs(q[row, batch.action[row]] - goal))
    result = dqn.update(batch)
    np.testing.assert_allclose(result.td_errors, want, rtol=1e-4, atol=1e-5)
    huber = np.where(np.array(want) < 1, 0.5 * np.square(want), np.array(want) - 0.5)
    assert result.loss == pytest.approx((huber * batch.weight).mean(), rel=1e-4)
    assert result.q_mean == pytest.approx(q[np.arange(16), batch.action].mean(), rel=1e-4)


@pytest.mark.parametrize("ended", [7, 16])
def test_what_follows_an_end_may_be_anything(ended: int) -> None:
    results = []
    for filler in (0.5, np.nan):
        batch = random_batch()
        batch.discount[:ended] = 0.0
        batch.next_obs["dom"][:ended] = filler
        dqn = DQN(PolicyNetwork(SCHEMA, seed=1))
        results.append((dqn.update(batch), parameters_of(dqn.online)))
    (first, weights), (second, same) = results
    np.testing.assert_array_equal(first.td_errors, second.td_errors)
    assert all((weights[name] == same[name]).all() for name in weights)


def test_truncation_bootstraps_and_termination_does_not() -> None:
    """One last step, cut off or ended: only the first is worth what the final page is worth."""
    rng = np.random.default_rng(0)
    memory = PrioritizedReplay(SCHEMA, 4 << 20)
    for terminated in (True, False):
        for _ in range(50):
            observations = {k: np.stack([v, v]) for k, v in Pages(rng).reset().items()}
            observations["goal"][:, 1] = float(terminated)
            assembler = NStepAssembler(3, 0.9)
            assembler.add(0, 2, 0.5, 0.0, 0.0)
            transitions = assembler.end(terminated=terminated, truncated=True, final_obs_index=1)
            memory.add(observations, **columns(transitions)._asdict())
    dqn = DQN(PolicyNetwork(SCHEMA, seed=1), DQNConfig(learning_rate=3e-3, target_update_interval=10**9))
    with torch.no_grad():
        # A target network that finds every page worth 10.
        for parameter in dqn.target.parameters():
            parameter.zero_()
        dqn.target.page_head.bias[-1] = 10.0
    for _ in range(200):
        result = dqn.update(memory.sample(32, 1.0, rng))
    assert result.loss < 0.05
    batch = memory.sample(64, 1.0, rng)
    taken = infer(dqn.online, batch.obs)[:, 2]
    ended = batch.obs["goal"][:, 1] == 1.0
    assert taken[ended] == pytest.approx(np.full(ended.sum(), 0.5), abs=0.5)
    assert taken[~ended] == pytest.approx(np.full((~ended).sum(), 9.5), abs=0.8)


def test_nothing_valid_next_is_worth_nothing() -> None:
    dqn = DQN(PolicyNetwork(SCHEMA, seed=1))
    batch = random_batch()
    batch.next_obs["action_mask"][:] = 0
    q = infer(dqn.online, batch.obs)[np.arange(16), batch.action]
    np.testing.assert_allclose(dqn.update(batch).td_errors, np.abs(q - batch.reward), rtol=1e-4, atol=1e-6)


def test_the_target_follows_every_so_many_updates() -> None:
    dqn = DQN(PolicyNetwork(SCHEMA), DQNConfig(target_update_interval=3))
    first = parameters_of(dqn.target)
    for update in range(1, 7):
        dqn.update(random_batch(seed=update))
        equal = all((parameters_of(dqn.online)[k] == v).all() for k, v in parameters_of(dqn.target).items())
        assert equal == (update in (3, 6))
        if update < 3:
            assert all((first[k] == v).all() for k, v in parameters_of(dqn.target).items())


@pytest.mark.parametrize("place", ["reward", "weight", "dom"])
def test_divergence_stops_before_the_weights_are_touched(place: str) -> None:
    dqn = DQN(PolicyNetwork(SCHEMA))
    dqn.update(random_batch())
    before = dqn.state_dict()
    batch = random_batch(seed=1)
    if place == "dom":
        batch.obs["dom"][3, 2, 1] = np.nan
    else:
        getattr(batch, place)[3] = np.nan
    with pytest.raises(DivergedError, match=r"learner\.learningRate") as caught:
        dqn.update(batch)
    assert caught.value.exit_code == ExitCode.DIVERGED
    after = dqn.state_dict()
    for group in before["arrays"]:
        for name, array in before["arrays"][group].items():
            np.testing.assert_array_equal(array, after["arrays"][group][name])
    dqn.update(random_batch(seed=2))


def test_gradients_are_clipped() -> None:
    batch = random_batch()
    batch.reward[:] = 1e6
    squared = DQNConfig(huber=False, gradient_clip=1e-3, learning_rate=1e-3)
    dqn = DQN(PolicyNetwork(SCHEMA), squared)
    assert dqn.update(batch).grad_norm > 1e3
    moment = dqn.state_dict()["arrays"]["optimizer"]
    norm = np.sqrt(sum(np.square(v / 0.1).sum() for k, v in moment.items() if k.endswith(".exp_avg")))
    assert norm == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.parametrize("decay", [0.0, 0.99])
def test_a_restored_learner_goes_on_exactly(decay: float) -> None:
    config = DQNConfig(target_update_interval=3, average_decay=decay)
    first = DQN(PolicyNetwork(SCHEMA, seed=1), config)
    for seed in range(5):
        first.update(random_batch(seed=seed))
    second = DQN(PolicyNetwork(SCHEMA, seed=2), config)
    second.load_state_dict(first.state_dict())
    for seed in range(5, 9):
        a, b = first.update(random_batch(seed=seed)), second.update(random_batch(seed=seed))
        assert a.loss == b.loss
        np.testing.assert_array_equal(a.td_errors, b.td_errors)
    assert first.updates == second.updates == 9
    for part in ("online", "target", "acting"):
        left, right = parameters_of(getattr(first, part)), parameters_of(getattr(second, part))
        assert all((left[k] == right[k]).all() for k in left)


def test_a_state_that_does_not_fit_is_refused() -> None:
    dqn = DQN(PolicyNetwork(SCHEMA))
    dqn.update(random_batch())
    saved = dqn.state_dict()
    with pytest.raises(CheckpointError, match="hiddenSize"):
        DQN(PolicyNetwork(SCHEMA, hidden_size=32)).load_state_dict(saved)
    del saved["arrays"]["optimizer"]["page.bias.exp_avg"]
    with pytest.raises(CheckpointError, match="exp_avg"):
        dqn.load_state_dict(saved)


def test_the_average_lags_and_is_what_acts() -> None:
    dqn = DQN(PolicyNetwork(SCHEMA), DQNConfig(average_decay=0.9, learning_rate=1e-2))
    for seed in range(30):
        dqn.update(random_batch(seed=seed))
    assert dqn.acting is not dqn.online
    online, average = parameters_of(dqn.online), parameters_of(dqn.acting)
    gap = max(np.abs(online[k] - average[k]).max() for k in online)
    assert 1e-4 < gap < 0.5
    assert DQN(PolicyNetwork(SCHEMA)).acting is not dqn.acting


def test_bfloat16_trains_and_stays_near() -> None:
    batch = random_batch()
    exact = DQN(PolicyNetwork(SCHEMA)).update(batch)
    dqn = DQN(PolicyNetwork(SCHEMA), DQNConfig(precision="bfloat16"))
    np.testing.assert_allclose(dqn.update(batch).td_errors, exact.td_errors, atol=0.05)
    first = dqn.update(batch).loss
    for _ in range(50):
        last = dqn.update(batch).loss
    assert last < first


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_a_gpu_that_is_not_there_is_one_clear_line() -> None:
    with pytest.raises(RunError, match=r"learner\.device is cuda"):
        DQN(PolicyNetwork(SCHEMA), DQNConfig(device="cuda"))
    assert DQN(PolicyNetwork(SCHEMA), DQNConfig(device="auto")).device.type == "cpu"


def test_an_unknown_precision_is_one_clear_line() -> None:
    with pytest.raises(RunError, match="float8"):
        DQN(PolicyNetwork(SCHEMA), dataclasses.replace(DQNConfig(), precision="float8"))


def test_invalid_actions_never_win_the_next_maximum() -> None:
    q = mask_invalid(torch.tensor([[1.0, 9.0]]), torch.tensor([[1, 0]]))
    assert int(q.argmax()) == 0
    assert set(to_tensors({"a": np.zeros(2, np.float16)})["a"].dtype.__str__().split()) == {"torch.float32"}
