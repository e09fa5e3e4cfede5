"""Many browsers behind one interface: each at its own pace, none lost, none left behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium.vector import AutoresetMode
from playing import CLICK_FIRST, shared_memory_left

from webgym.errors import BrowserError, TaskError
from webgym.schema import ActionKind
from webgym_workers.browser.chromium import BrowserOptions
from webgym_workers.env import WebEnv
from webgym_workers.tasks import Outcome, Task
from webgym_workers.vector import Received, SlotState, WebVectorEnv


class Slow(Task):
    """A click on the second button takes a while; one on the third cannot be judged; one on the fourth ends it."""

    probe = "globalThis.said ?? null"
    viewport = (300, 200)
    max_steps = 100_000

    def start_page(self, seed: int) -> str:
        slow = "const end = Date.now() + 700; while (Date.now() < end);"
        clicks = {"quick": "", "slow": slow, "judge": "said=1", "end": "said=2"}
        return "data:text/html," + "".join(f"<button onclick='{c}'>{n}</button>" for n, c in clicks.items())

    def judge(self, probe: Any) -> Outcome:
        if probe == 1:
            raise ValueError("I cannot judge this")
        return Outcome(reward=1, done=True, success=True) if probe else Outcome()


QUICK, SLOW, JUDGE, END = (np.array([ActionKind.CLICK, i, 0]) for i in range(4))


@pytest.fixture(scope="module", autouse=True)
def _path(chromium: Path) -> Iterator[None]:
    sys.path.insert(0, str(Path(__file__).parent))
    yield
    sys.path.pop(0)


@pytest.fixture(scope="module")
def slow(_path: None) -> Iterator[WebVectorEnv]:
    """Two browsers that no test leaves broken."""
    env = WebVectorEnv("test_vector:Slow", 2)
    yield env
    env.close()


def begin(env: WebVectorEnv) -> Received:
    env.send_reset(range(env.num_envs), seed=0)
    return env.recv(env.num_envs)


def pids(env: WebVectorEnv) -> list[int]:
    assert env._pool is not None
    return [env._pool[i].process.pid for i in range(env.num_envs)]


def tree(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def test_spaces_are_those_of_one_environment_stacked(slow: WebVectorEnv) -> None:
    received = begin(slow)
    assert sorted(received.env_ids) == [0, 1]
    assert slow.single_observation_space == WebEnv("miniwob.click-test").observation_space
    assert slow.single_action_space == WebEnv("miniwob.click-test").action_space
    assert received.observations in slow.observation_space
    assert slow.action_space.shape == (2, 3)
    assert slow.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert received.rewards.tolist() == [0, 0]
    assert not received.terminations.any()
    assert not received.truncations.any()


def test_nobody_waits_for_a_slower_one(slow: WebVectorEnv) -> None:
    begin(slow)
    slow.send(np.array([SLOW, QUICK]), [0, 1])
    for _ in range(3):
        received = slow.recv()
        assert received.env_ids.tolist() == [1]
        slow.send(np.array([QUICK]), received.env_ids)
    both = [int(i) for _ in range(2) for i in slow.recv().env_ids]
    assert sorted(both) == [0, 1]
    with pytest.raises(RuntimeError, match="only 0 were sent anything"):
        slow.recv()


def test_rows_belong_to_their_environments_whatever_the_order(slow: WebVectorEnv) -> None:
    begin(slow)
    slow.send(np.array([SLOW, END]), [1, 0])
    received = slow.recv(2)
    assert received.env_ids.tolist() == [0, 1]
    assert received.rewards.tolist() == [1, 0]
    assert received.terminations.tolist() == [True, False]
    assert [info["success"] for info in received.infos] == [True, False]
    # In the order in which they were sent, step() gives them in that of their numbers.
    begin(slow)
    observations, rewards, terminations, truncations, infos = slow.step(np.array([SLOW, END]))
    assert observations in slow.observation_space
    assert rewards.tolist() == [0, 1]
    assert terminations.tolist() == [False, True]
    assert not truncations.any()
    assert infos["success"].tolist() == [False, True]
    assert infos["_success"].tolist() == [True, True]


def test_an_episode_that_ended_begins_anew_with_the_next_action(slow: WebVectorEnv) -> None:
    begin(slow)
    slow.send(np.array([END]), [0])
    assert slow.recv().terminations.tolist() == [True]
    slow.send(np.array([END]), [0])
    received = slow.recv()
    # The action was not carried out.
    assert received.terminations.tolist() == [False]
    assert received.rewards.tolist() == [0]
    assert received.observations["goal"][0, 0] == 0


def test_time_that_runs_out_loses_nothing(slow: WebVectorEnv) -> None:
    begin(slow)
    slow.send(np.array([SLOW, QUICK]), [0, 1])
    with pytest.raises(TimeoutError, match=r"within 0\.3 s"):
        slow.recv(2, timeout=0.3)
    with pytest.raises(RuntimeError, match="environment 1 is busy"):
        slow.send(np.array([QUICK]), [1])
    assert sorted(slow.recv(2, timeout=10).env_ids) == [0, 1]


def test_what_is_wrong_is_said_before_anything_is_begun(slow: WebVectorEnv) -> None:
    fresh = WebVectorEnv("miniwob.click-test", 2)
    with pytest.raises(gymnasium.error.ResetNeeded, match="environment 0 was never reset"):
        fresh.send(np.array([CLICK_FIRST]), [0])
    begin(slow)
    wrong: list[tuple[Any, Any, type[Exception], str]] = [
        ([QUICK, [12, 0, 0]], [0, 1], gymnasium.error.InvalidAction, "three whole numbers"),
        ([QUICK], [0, 1], ValueError, "1 actions for 2 environments"),
        ([QUICK, QUICK], [0, 0], ValueError, "named twice"),
        ([QUICK, QUICK], [0, 2], ValueError, "no environment 2"),
        ([QUICK], [-1], ValueError, "no environment -1"),
    ]
    for actions, env_ids, kind, said in wrong:
        with pytest.raises(kind, match=said):
            slow.send(actions, env_ids)
    with pytest.raises(ValueError, match="1 at least"):
        slow.recv(0)
    with pytest.raises(ValueError, match="3 seeds for 2"):
        slow.reset(seed=[1, 2, 3])
    assert slow._states == [SlotState.RUNNING] * 2
    with pytest.raises(ValueError, match="1 at least"):
        WebVectorEnv("miniwob.click-test", 0)
    with pytest.raises(TaskError, match="did you mean"):
        WebVectorEnv("miniwob.click-tets", 2)


def test_an_error_of_one_costs_no_result_of_another(slow: WebVectorEnv) -> None:
    begin(slow)
    slow.send(np.array([JUDGE, END]), [0, 1])
    results, errors = [], []
    while len(results) + len(errors) < 2:
        try:
            results += slow.recv().env_ids.tolist()
        except TaskError as error:
            errors.append(str(error))
    assert results == [1]
    assert len(errors) == 1
    assert "I cannot judge this" in errors[0]
    # The one with the error has to be reset, the other goes on.
    with pytest.raises(gymnasium.error.ResetNeeded, match="environment 0"):
        slow.send(np.array([QUICK]), [0])
    slow.send(np.array([QUICK]), [1])
    slow.send_reset([0])
    assert sorted(slow.recv(2).env_ids) == [0, 1]


def test_environment_i_is_an_environment_with_seed_plus_i() -> None:
    env = WebVectorEnv("miniwob.click-test-2", 2)
    single = WebEnv("miniwob.click-test-2")
    try:
        for _ in range(2):
            observations, _ = env.reset(seed=11)
            for i in range(2):
                alone, _ = single.reset(seed=11 + i)
                assert all(np.array_equal(observations[name][i], alone[name]) for name in alone)
        assert not np.array_equal(observations["dom"][0], observations["dom"][1])
        mixed, _ = env.reset(seed=[12, None])
        assert np.array_equal(mixed["dom"][0], observations["dom"][1])
    finally:
        env.close()
        single.close()


def test_a_killed_browser_costs_its_own_episode_only_and_nothing_is_left() -> None:
    memory = shared_memory_left()
    threads = set(threading.enumerate())
    env = WebVectorEnv("test_vector:Slow", 3, browser=BrowserOptions(action_timeout=5.0))
    begin(env)
    before = pids(env)
    assert env._pool is not None
    profiles = [env._pool[i].process.profile for i in range(3)]
    processes = [p for pid in before for p in tree(pid)]
    env.send(np.array([QUICK, SLOW, QUICK]), range(3))
    os.kill(before[1], signal.SIGKILL)
    seen: dict[int, int] = {0: 0, 1: 0, 2: 0}
    fault = ""
    while not fault or min(seen.values()) < 3:
        received = env.recv(timeout=30)
        for row, i in enumerate(received.env_ids.tolist()):
            seen[i] += 1
            if received.truncations[row]:
                assert i == 1
                assert received.rewards[row] == 0
                fault = received.infos[row]["fault"]
                assert received.observations["dom"][row].shape == (20, 25)
            env.send(np.array([QUICK]), [i])
    assert fault.startswith("BrowserGone: ")
    after = pids(env)
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1] != before[1]
    # Closed in the midst of everything.
    processes += tree(after[1])
    profiles.append(env._pool[1].process.profile)
    env.close()
    env.close()
    assert psutil.wait_procs(processes, timeout=5)[1] == []
    assert not any(profile.exists() for profile in profiles)
    assert set(threading.enumerate()) <= threads
    assert shared_memory_left(memory) == set()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        env.send(np.array([QUICK]), [0])
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        env.reset()


def test_closing_what_never_began_is_nothing() -> None:
    threads = set(threading.enumerate())
    env = WebVectorEnv("miniwob.click-test", 2)
    env.close()
    assert set(threading.enumerate()) <= threads


def test_a_step_without_end_is_cut_off() -> None:
    env = WebVectorEnv("test_vector:Slow", 1, deadline=0.3, browser=BrowserOptions(action_timeout=5.0))
    try:
        env._deadline = 60.0
        begin(env)
        env._deadline = 0.3
        env.send(np.array([SLOW]), [0])
        received = env.recv(timeout=10)
        assert received.truncations.tolist() == [True]
        assert received.infos[0]["fault"].startswith("TimeoutError")
        env._deadline = 60.0
        env.send(np.array([QUICK]), [0])
        assert not env.recv(timeout=20).truncations.any()
    finally:
        env.close()


def test_a_browser_that_cannot_start_is_an_error_for_who_waits(tmp_path: Path) -> None:
    program = tmp_path / "browser"
    program.write_text("#!/bin/sh\necho 'FATAL: broken' >&2; exit 1\n")
    program.chmod(0o755)
    env = WebVectorEnv(
        "miniwob.click-test", 2, browser=BrowserOptions(executable=str(program), sandbox="Disabled")
    )
    try:
        env.send_reset([0, 1])
        for _ in range(2):
            with pytest.raises(BrowserError, match="broken") as error:
                env.recv(timeout=30)
            assert "\n" not in str(error.value)
        assert env._states == [SlotState.NEW] * 2
    finally:
        env.close()
