"""A real run, as a user starts it, and ways to look into it and to hurt it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from webgym.rundir import read_json_lines

MANIFEST = """
apiVersion: webgym.io/v1alpha1
kind: WebGymRun
metadata:
  name: demo
spec:
  task:
    name: miniwob.click-test
  workers:
    maxBrowsers: 2
  policy:
    exploration:
      warmupSteps: 50
  learner:
    batchSize: 32
    replay:
      minTransitions: 50
    checkpoint:
      intervalSeconds: 2
  stop:
    steps: 300
  evaluation:
    episodes: 20
"""


def alive(process: psutil.Process) -> bool:
    """Whether it runs, zombies left out; it may end between any two questions."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Running:
    """A `webgym run` in progress."""

    def __init__(self, process: subprocess.Popen[str], out: Path) -> None:
        self.process = process
        self.out = out

    def descendants(self, *words: str) -> list[psutil.Process]:
        """Living descendants whose command line holds all the words."""
        found = []
        try:
            children = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        for child in children:
            try:
                line = " ".join(child.cmdline())
                if child.status() != psutil.STATUS_ZOMBIE and all(word in line for word in words):
                    found.append(child)
            except psutil.Error:
                continue
        return found

    def until(self, condition: Callable[[], Any], seconds: float = 90.0) -> Any:
        """Wait until the condition holds; its value."""
        end = time.monotonic() + seconds
        while not (value := condition()):
            assert self.process.poll() is None, "the run ended meanwhile"
            assert time.monotonic() < end, "waited too long"
            time.sleep(0.05)
        return value

    def last(self, name: str) -> float:
        """The latest number of that name in the metrics."""
        lines = list(read_json_lines(self.out / "metrics.jsonl"))
        return float(lines[-1].get(name) or 0) if lines else 0.0

    def kill(self, *words: str) -> psutil.Process:
        """SIGKILL one descendant."""
        victim = self.until(lambda: self.descendants(*words), 30)[0]
        victim.kill()
        return victim

    def end(self, seconds: float = 120.0) -> tuple[int, str, str]:
        """Wait for its end; exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err


Start = Callable[..., Running]
"""What the fixture ``start`` gives: it starts a `webgym` command."""
