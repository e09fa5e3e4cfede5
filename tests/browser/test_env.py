"""The environment, as anybody who knows Gymnasium would use it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from playing import CLICK_FIRST, WAIT, same

import webgym_workers
from webgym.errors import TaskError
from webgym.schema import Action, ActionKind, Observation, Schema
from webgym_policy.selection import random_action
from webgym_workers.env import WebEnv

SHOP = Path(webgym_workers.__file__).parents[2] / "examples" / "own_task"


@pytest.fixture(scope="module", autouse=True)
def _paths(chromium: Path) -> Iterator[None]:
    sys.path.insert(0, str(SHOP))
    yield
    sys.path.remove(str(SHOP))


@pytest.fixture(scope="module")
def shared(_paths: None) -> Iterator[WebEnv]:
    """An environment that no test leaves broken."""
    env = WebEnv("miniwob.click-test-2", render_mode="rgb_array")
    yield env
    env.close()


def random_of(observation: Observation, rng: np.random.Generator) -> np.ndarray:
    schema = Schema()
    return np.array(schema.decode(random_action(observation["action_mask"], schema, rng)))


@pytest.mark.parametrize("made", [True, False])
def test_gymnasiums_own_check_finds_nothing(made: bool, recwarn: pytest.WarningsRecorder) -> None:
    if made:
        env = gymnasium.make("webgym/miniwob.click-checkboxes-v1", render_mode="rgb_array").unwrapped
    else:
        env = WebEnv("fruit_shop:FruitShop", render_mode="rgb_array")
    try:
        check_env(env)
    finally:
        env.close()
    warnings = [str(w.message) for w in recwarn if "gymnasium" in str(w.filename)]
    assert all("not having a spec" in w for w in warnings) if not made else warnings == []


def test_make_knows_every_task_and_its_spec_makes_it_again() -> None:
    env = gymnasium.make("webgym/miniwob.click-test-v1", max_episode_steps=5)
    try:
        assert isinstance(env.unwrapped, WebEnv)
        observation, info = env.reset(seed=0)
        assert observation in env.observation_space
        assert info["goal"] == "Click the button."
        observation, reward, terminated, truncated, info = env.step(CLICK_FIRST)
        assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
        assert isinstance(reward, float)
        assert isinstance(terminated, bool)
        assert observation in env.observation_space
        assert "fault" not in info
    finally:
        env.close()


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("miniwob.click-tset", "did you mean 'miniwob.click-test'"),
        ("no_such_module:Task", "there is no module 'no_such_module'"),
        ("fruit_shop:Fruit", "has no 'Fruit'"),
        ("fruit_shop:Path", "not a webgym_workers.tasks.Task"),
    ],
)
def test_tasks_that_there_are_not_are_told_at_once(task: str, said: str) -> None:
    with pytest.raises(TaskError, match=said) as error:
        WebEnv(task)
    assert "\n" not in str(error.value)


def test_a_render_mode_that_there_is_not() -> None:
    with pytest.raises(gymnasium.error.UnsupportedMode, match="'human'"):
        WebEnv("miniwob.click-test", render_mode="human")


def test_step_needs_a_running_episode(shared: WebEnv) -> None:
    fresh = WebEnv("miniwob.click-test")
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"reset\(\)"):
        fresh.step(CLICK_FIRST)
    assert fresh.render() is None
    fresh.close()
    shared.reset(seed=1)
    _, _, terminated, _, _ = shared.step(CLICK_FIRST)
    assert terminated
    with pytest.raises(gymnasium.error.ResetNeeded):
        shared.step(CLICK_FIRST)
    # After the end the page can still be looked at.
    assert shared.render() is not None
    shared.reset()
    shared.step(CLICK_FIRST)


@pytest.mark.parametrize(
    "action",
    [
        np.array([12, 0, 0]), np.array([0, 20, 0]), np.array([0, 0, 8]), np.array([-1, 0, 0]), np.array([0, 0]),
        np.array([[0, 0, 0]]), np.array([0.0, 0.5, 0.0]), np.array([np.nan, 0, 0]), "click", 3, None, [0, 0, 0, 0],
        {"kind": 0},
    ],
)  # fmt: skip
def test_actions_outside_of_the_space_are_refused(shared: WebEnv, action: Any) -> None:
    shared.reset(seed=1)
    with pytest.raises(gymnasium.error.InvalidAction, match=r"\(12, 20, 8\)") as error:
        shared.step(action)
    assert "\n" not in str(error.value)
    # Nothing was done, and the episode goes on.
    _, _, _, _, info = shared.step(CLICK_FIRST)
    assert not info["invalid_action"]


def test_actions_may_be_any_three_whole_numbers(shared: WebEnv) -> None:
    for action in ([0, 0, 0], (0, 0, 0), np.array([0, 0, 0], dtype=np.uint8), Action(ActionKind.CLICK)):
        shared.reset(seed=1)
        _, _, terminated, _, _ = shared.step(action)  # type: ignore[arg-type]
        assert terminated


def test_what_the_mask_forbids_is_told(shared: WebEnv) -> None:
    before, _ = shared.reset(seed=1)
    observation, reward, terminated, truncated, info = shared.step(np.array([ActionKind.TYPE, 0, 0]))
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["invalid_action"] is True
    assert info["invalid_reason"] == "the action mask forbids it"
    assert np.array_equal(observation["action_mask"], before["action_mask"])


def test_a_seed_gives_the_same_trajectory(shared: WebEnv) -> None:
    runs = []
    for _ in range(2):
        rng, run = np.random.default_rng(3), []
        observation, info = shared.reset(seed=7)
        for _ in range(4):
            step = shared.step(random_of(observation, rng))
            run.append((observation, info, *step[1:]))
            observation, info = shared.reset() if step[2] or step[3] else (step[0], step[4])
        runs.append(run)
    for one, other in zip(*runs, strict=True):
        assert same(one[0], other[0])
        assert one[1:] == other[1:]
    pages = {shared.reset(seed=seed)[0]["dom"].tobytes() for seed in range(8)}
    assert len(pages) > 4
    # Without a seed the episodes differ, and page_seed names one.
    named = [shared.reset(options={"page_seed": 5})[0] for _ in range(2)]
    assert same(*named)


def test_observations_are_the_callers_own(shared: WebEnv) -> None:
    first, _ = shared.reset(seed=1)
    kept = {name: array.copy() for name, array in first.items()}
    second = shared.step(WAIT)[0]
    second["action_mask"][:] = 0
    second["dom"][:] = 9
    assert same(first, kept)
    _, _, terminated, _, info = shared.step(CLICK_FIRST)
    # What the caller does to an observation does not change what is possible.
    assert terminated
    assert not info["invalid_action"]


def test_render_shows_the_page(shared: WebEnv) -> None:
    shared.reset(seed=1)
    picture = shared.render()
    assert picture is not None
    assert (picture.shape, picture.dtype) == ((320, 320, 3), np.uint8)
    assert picture.min() < 100
    assert picture.max() == 255
    plain = WebEnv("miniwob.click-test")
    assert plain.render() is None


def test_episodes_are_cut_off(shared: WebEnv) -> None:
    env = gymnasium.wrappers.TimeLimit(shared, 2)
    env.reset(seed=1)
    assert env.step(WAIT)[2:4] == (False, False)
    assert env.step(WAIT)[2:4] == (False, True)
    shared._max_steps = 1
    try:
        shared.reset(seed=1)
        assert shared.step(WAIT)[2:4] == (False, True)
        with pytest.raises(gymnasium.error.ResetNeeded):
            shared.step(WAIT)
    finally:
        shared._max_steps = None


async def test_it_works_where_an_event_loop_is_running(shared: WebEnv) -> None:
    # As in a notebook.
    assert asyncio.get_running_loop().is_running()
    shared.reset(seed=1)
    assert shared.step(CLICK_FIRST)[2]


def test_random_actions_are_possible_ones_and_seeded() -> None:
    drawn = []
    for _ in range(2):
        with contextlib.closing(WebEnv("miniwob.click-checkboxes")) as env:
            with pytest.raises(gymnasium.error.ResetNeeded):
                env.random_action()
            env.reset(seed=5)
            actions = []
            for _ in range(4):
                action = env.random_action()
                assert env.action_space.contains(action)
                _, _, terminated, truncated, info = env.step(action)
                assert not info["invalid_action"]
                actions.append(tuple(action))
                if terminated or truncated:
                    break
            drawn.append(actions)
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("task", ["click-collapsible", "click-menu", "use-autocomplete"])
def test_a_page_that_skips_its_waits_plays_the_same_episodes(
    monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    """Episodes of the same seeds and actions; those that are skipped through are shorter in our time only."""
    seen: list[list[Any]] = []
    seconds = []
    for skips in (False, True):
        env = WebEnv(f"miniwob.{task}", params={"skips_waits": skips})
        steps: list[Any] = []
        try:
            observation, _ = env.reset(seed=3)
            start = time.perf_counter()
            for n in range(25):
                steps.append({name: np.array(value) for name, value in observation.items()})
                action = env.random_action()
                observation, reward, done, truncated, _ = env.step(action)
                steps.append((action.tolist(), float(reward), done))
                if done or truncated:
                    observation, _ = env.reset(seed=4 + n)
            seconds.append(time.perf_counter() - start)
        finally:
            env.close()
        seen.append(steps)
    for real, skipped in zip(*seen, strict=True):
        if isinstance(real, dict):
            for name, value in real.items():
                np.testing.assert_allclose(skipped[name], value, atol=0.02, err_msg=name)
        else:
            assert skipped == real
    assert seconds[1] < seconds[0]
