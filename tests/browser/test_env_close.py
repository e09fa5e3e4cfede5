"""What the environment leaves when it is closed, and when nobody closes it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import gymnasium
import psutil
import pytest
from playing import CLICK_FIRST, browser_pid, shared_memory_left

from webgym_workers.env import WebEnv

pytestmark = pytest.mark.usefixtures("chromium")


def test_close_leaves_nothing_and_may_be_repeated() -> None:
    memory = shared_memory_left()
    threads = set(threading.enumerate())
    env = WebEnv("miniwob.click-test")
    env.close()
    env.reset(seed=0)
    assert env._pool is not None
    profile = env._pool[0].process.profile
    browser = psutil.Process(browser_pid(env))
    children = [browser, *browser.children(recursive=True)]
    assert profile.exists()
    env.close()
    env.close()
    assert psutil.wait_procs(children, timeout=5)[1] == []
    assert not profile.exists()
    assert set(threading.enumerate()) <= threads
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(CLICK_FIRST)
    # It can be begun again.
    env.reset(seed=0)
    assert env.step(CLICK_FIRST)[2]
    env.close()
    assert shared_memory_left(memory) == set()


FORGETFUL = """
import gc, sys, threading, time
from webgym_workers.env import WebEnv
from webgym_workers.vector import WebVectorEnv
kind, end = sys.argv[1:]
env = WebEnv("miniwob.click-test") if kind == "one" else WebVectorEnv("miniwob.click-test", 2)
env.reset(seed=0)
if kind == "vector":
    env.send(env.action_space.sample() * 0, [0, 1])
for index in range(env._pool.count):
    browser = env._pool[index].process
    print(browser.pid, browser.profile, flush=True)
if end == "interrupt":
    raise KeyboardInterrupt
if end == "garbage":
    env.itself = env
    del env, browser
    deadline = time.monotonic() + 30
    while any("browser" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        gc.collect()  # what still runs holds the environment
        time.sleep(0.01)
    print("gone", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("kind", "end"),
    [("one", "end"), ("one", "garbage"), ("vector", "interrupt"), ("vector", "garbage")],
)
def test_a_program_that_forgets_to_close_leaves_nothing_and_hears_nothing(
    tmp_path: Path, kind: str, end: str
) -> None:
    memory = shared_memory_left()
    program = subprocess.Popen(
        [sys.executable, "-c", FORGETFUL, kind, end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert program.stdout is not None
    started = [program.stdout.readline().split() for _ in range(1 if kind == "one" else 2)]
    if end == "garbage":
        # What nobody holds any more goes while the program runs.
        assert program.stdout.readline() == "gone\n"
        assert not any(psutil.pid_exists(int(pid)) for pid, _ in started)
    _, told = program.communicate(timeout=60)
    if end == "interrupt":
        assert told.splitlines()[-1] == "KeyboardInterrupt"
    else:
        assert told == ""
        assert program.returncode == 0
    assert not any(psutil.pid_exists(int(pid)) for pid, _ in started)
    assert not any(Path(profile).exists() for _, profile in started)
    assert shared_memory_left(memory) == set()
