"""Tasks that never work: the run ends by itself, with what is wrong in its last line."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e_run import Running, Start

TASKS = """
from webgym_workers.tasks import Outcome, Task

class Base(Task):
    probe = "null"
    def start_page(self, seed): return "data:text/html,<button>a</button>"
    def goal(self, seed): return "click"
    def judge(self, probe): return Outcome()

class EndlessLoop(Base):
    def setup(self, seed): return "(() => { for (;;); })()"

class JudgeRaises(Base):
    def judge(self, probe): return [][seed]
"""

MANIFEST = """
apiVersion: webgym.io/v1alpha1
kind: WebGymRun
metadata: {name: demo}
spec:
  task: {name: "faulty:EndlessLoop"}
  workers: {maxBrowsers: 2}
  stop: {steps: 100}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("task", "code", "words"),
    [
        ("EndlessLoop", 1, ("6 of 6 attempts failed", "faulty:EndlessLoop", "CDPTimeout")),
        ("JudgeRaises", 2, ("JudgeRaises.judge", "NameError", "faulty.py")),
    ],
)
def test_a_task_that_never_works_ends_the_run(
    tmp_path: Path, start: Start, task: str, code: int, words: tuple[str, ...]
) -> None:
    (tmp_path / "faulty.py").write_text(TASKS)
    (tmp_path / "demo.yaml").write_text(MANIFEST)
    running: Running = start(
        tmp_path, "run", "demo.yaml", "--quiet", "--set", f"task.name=faulty:{task}", out=tmp_path / "demo"
    )
    ended, _, err = running.end()
    assert ended == code, err
    last = err.strip().splitlines()[-1]
    for word in words:
        assert word in last
    assert "Traceback" not in err
