"""The environment when its browser is killed, its page hangs, or its task fails."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from playing import CLICK_FIRST, WAIT, browser_pid, same

from webgym.errors import TaskError
from webgym.schema import ActionKind
from webgym_workers.browser.chromium import BrowserOptions
from webgym_workers.env import WebEnv
from webgym_workers.tasks import Outcome, Task

pytestmark = pytest.mark.usefixtures("chromium")


class Nasty(Task):
    """Hangs when it is clicked, goes away when it waits, and raises when it is judged."""

    probe = "globalThis.said ?? null"
    viewport = (300, 200)

    def start_page(self, seed: int) -> str:
        return (
            "data:text/html,<button onclick='for(;;);'>hang</button><button onclick='said=1'>judge</button>"
            "<button onclick='said=2'>whole numbers</button>"
        )

    def judge(self, probe: Any) -> Outcome:
        if probe == 1:
            raise ValueError("I cannot judge this")
        return Outcome(reward=2, done=probe, success=probe) if probe else Outcome()


def test_a_killed_browser_ends_the_episode_and_is_replaced() -> None:
    env = WebEnv("miniwob.click-test-2", render_mode="rgb_array")
    try:
        first, info = env.reset(seed=3)
        pid = browser_pid(env)
        os.kill(pid, signal.SIGKILL)
        observation, reward, terminated, truncated, info = env.step(WAIT)
        if "fault" not in info:  # a process takes a moment to die
            observation, reward, terminated, truncated, info = env.step(CLICK_FIRST)
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert info["fault"].startswith("BrowserGone: ")
        assert "\n" not in info["fault"]
        assert observation in env.observation_space
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(WAIT)
        again, info = env.reset(seed=3)
        assert "fault" not in info
        assert same(again, first)
        assert browser_pid(env) != pid
        assert env.step(CLICK_FIRST)[2]
        # Between two episodes nobody has to know.
        os.kill(browser_pid(env), signal.SIGKILL)
        assert same(env.reset(seed=3)[0], first)
    finally:
        env.close()


def test_a_page_that_hangs_costs_its_episode_only() -> None:
    options = BrowserOptions(action_timeout=0.5)
    env = WebEnv("test_env_faults:Nasty", settle_budget=0.5, browser=options)
    try:
        env.reset(seed=0)
        pid = browser_pid(env)
        _, _, terminated, truncated, info = env.step(CLICK_FIRST)
        assert (terminated, truncated) == (False, True)
        assert info["fault"].startswith("CDPTimeout: ")
        _, info = env.reset(seed=0)
        assert env.step(np.array([ActionKind.CLICK, 2, 0]))[1:3] == (2.0, True)
        assert browser_pid(env) == pid
        # The task's own mistakes are no faults of the browser's.
        env.reset(seed=0)
        with pytest.raises(TaskError, match=r"Nasty\.judge\(1\) raised ValueError: I cannot judge this"):
            env.step(np.array([ActionKind.CLICK, 1, 0]))
        env.reset(seed=0)
        assert not env.step(np.array([ActionKind.HOVER, 0, 0]))[2]
        # Killed in the midst of a step.
        killer = threading.Timer(0.1, os.kill, (browser_pid(env), signal.SIGKILL))
        killer.start()
        _, _, _, truncated, info = env.step(CLICK_FIRST)
        assert truncated
        assert info["fault"].startswith("BrowserGone: ")
        assert env.reset(seed=0)[1]["success"] is False
    finally:
        env.close()


PROBES = """
from webgym_workers.tasks import Outcome, Task


class Shop(Task):
    probe = "({paid: shop.paid})"

    def start_page(self, seed):
        return "data:text/html,<button>a</button>"

    def judge(self, probe):
        return Outcome(done=probe["paid"])


class Typo(Shop):
    probe = "({paid: "
"""


def test_a_probe_that_fails_is_told_with_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "probes_that_fail.py").write_text(PROBES)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, said in (
        (
            "Shop",
            r"^Shop\.probe threw ReferenceError: shop is not defined in the page, and Shop\.judge\(None\) ",
        ),
        ("Typo", r"^Typo\.probe is no JavaScript expression: SyntaxError: "),
    ):
        env = WebEnv(f"probes_that_fail:{name}")
        with contextlib.closing(env), pytest.raises(TaskError, match=said):
            env.reset(seed=0)
