"""Tasks of a user's own: found where one puts them, and blamed for what their code does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from webgym.errors import TaskError, UsageError
from webgym.spec import TaskSpec
from webgym.tasks import installed_task_check, look_for_tasks_in
from webgym_workers.tasks import Goal, Outcome, Task
from webgym_workers.tasks.fault import describe_fault
from webgym_workers.tasks.miniwob import MiniWobTask
from webgym_workers.tasks.registry import check_task, create_task, task_names

SHOP = """
from webgym_workers.tasks import Outcome, Task

class Shop(Task):
    def __init__(self, fruit="apple"):
        self.fruit = fruit
    def start_page(self, seed):
        return "about:blank"
    def judge(self, probe):
        return Outcome()
"""

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module into the current directory; search path and modules are as before after the test."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.chdir(tmp_path)

    def module(name: str, text: str) -> Path:
        monkeypatch.delitem(sys.modules, name, raising=False)
        file = tmp_path / f"{name}.py"
        file.write_text(text)
        return file

    return module


def refusal(name: str, params: dict[str, object] | None = None) -> str:
    with pytest.raises(TaskError) as caught:
        create_task(name, params)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert name in message
    return message


def test_every_page_of_miniwob_is_a_task() -> None:
    names = task_names()
    assert len(names) > 100
    assert list(names) == sorted(set(names))
    task = create_task("miniwob.click-test")
    assert isinstance(task, MiniWobTask)
    assert task.start_page(1).startswith("file:///")
    assert "seedrandom(String(7))" in task.setup(7)
    check_task(TaskSpec(name="miniwob.click-test"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("miniwob.click-tset", "miniwob.click-test"),
        ("click-test", "miniwob.click-test"),
        ("zzzzzzzz", "webgym tasks"),
        ("shop.Shop", "module:Class"),
    ],
)
def test_a_name_that_nobody_knows_gets_a_hint(name: str, hint: str) -> None:
    assert hint in refusal(name)


def test_miniwob_takes_no_params_but_one() -> None:
    assert "takes no params but skips_waits" in refusal("miniwob.click-test", {"size": 3})
    assert "has {'skips_waits': 'no'}" in refusal("miniwob.click-test", {"skips_waits": "no"})
    assert create_task("miniwob.click-test").skips_waits
    assert not create_task("miniwob.click-test", {"skips_waits": False}).skips_waits


@pytest.mark.parametrize(
    ("probe", "outcome"),
    [
        (None, Outcome()),
        ({"done": False, "raw": 1.0}, Outcome()),
        ({"done": True, "raw": 1}, Outcome(1.0, True, True)),
        ({"done": True, "raw": 0.5}, Outcome(0.5, True, False)),
        ({"done": True, "raw": -7}, Outcome(-1.0, True, False)),
        ({"done": True, "raw": None}, Outcome(0.0, True, False)),
    ],
)
def test_how_miniwob_is_judged(probe: object, outcome: Outcome) -> None:
    assert create_task("miniwob.click-test").judge(probe) == outcome


def test_a_module_in_the_current_directory_is_found_with_its_params(write: Write) -> None:
    write("shop_here", SHOP)
    task = create_task("shop_here:Shop", {"fruit": "pear"})
    assert isinstance(task, Task)
    assert vars(task) == {"fruit": "pear"}
    assert "params do not fit" in refusal("shop_here:Shop", {"colour": "red"})


def test_a_folder_that_is_named_is_searched_and_what_python_knows_comes_first(
    write: Write, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "shop_there.py").write_text(SHOP)
    (folder / "json.py").write_text("raise RuntimeError('not the one')")
    assert "shop_there" in refusal("shop_there:Shop")
    look_for_tasks_in([Path("elsewhere"), folder, tmp_path / "missing"])
    assert isinstance(create_task("shop_there:Shop"), Task)
    assert sys.path.count(str(folder)) == 1
    assert sys.path[-1] == str(tmp_path / "missing")
    assert json.__file__ in refusal("json:Shop")


def test_nested_classes_and_functions_make_tasks_too(write: Write) -> None:
    write("shop_nested", SHOP + "class All:\n    Inner = Shop\ndef make(fruit):\n    return Shop(fruit)\n")
    assert vars(create_task("shop_nested:All.Inner")) == {"fruit": "apple"}
    assert vars(create_task("shop_nested:make", {"fruit": "fig"})) == {"fruit": "fig"}


def test_what_is_not_there_is_named(write: Write) -> None:
    file = write("shop_bare", "Shop = 3\n")
    assert "'nowhere_at_all'" in refusal("nowhere_at_all:Shop")
    assert "PYTHONPATH" in refusal("nowhere_at_all.deep:Shop")
    assert str(file) in (message := refusal("shop_bare:Shap"))
    assert "'Shap'" in message
    assert "is not a class" in refusal("shop_bare:Shop")
    assert "made a dict" in refusal("builtins:dict")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\nclass Shop(:\n", ("SyntaxError", ":2)")),
        ("def f():\n\treturn 1\n        return 2\n", ("TabError", ":3)")),
        ("x = 1\n\nclass Shop(Tasks): pass\n", ("NameError: name 'Tasks' is not defined", ":3)")),
        ("import numpyy\n", ("ModuleNotFoundError: No module named 'numpyy'", ":1)")),
        ("from json import lods\n", ("ImportError", "lods", ":1)")),
        ("import json\n\njson.loads('{')\n", ("JSONDecodeError", ":3)")),
        ("raise RuntimeError('one\\n\\ntwo   three')\n", ("RuntimeError: one two three (", ":1)")),
        ("raise RuntimeError\n", ("RuntimeError (", ":1)")),
        ("raise RuntimeError('x' * 5000)\n", ("RuntimeError: xxx", "xxx…", ":1)")),
        ("import sys\nsys.exit('no')\n", ("SystemExit: no", ":2)")),
        ("def f():\n    f()\nf()\n", ("RecursionError", ":2)")),
        ("1 / 0\n", ("ZeroDivisionError", ":1)")),
    ],
    ids=lambda value: value[0].partition(":")[0] if isinstance(value, tuple) else "",
)
def test_whatever_a_module_raises_is_one_line_with_the_place(
    write: Write, text: str, words: tuple[str, ...]
) -> None:
    file = write("shop_broken", text)
    message = refusal("shop_broken:Shop")
    assert f"({file}:" in message
    for word in words:
        assert word in message
    assert len(message) < 600 + len(str(file))


def test_our_own_errors_pass_as_they_are_and_an_interrupt_is_none(write: Write) -> None:
    write("shop_strict", "from webgym.errors import UsageError\nraise UsageError('set SHOP_URL')\n")
    with pytest.raises(UsageError, match=r"^set SHOP_URL$"):
        create_task("shop_strict:Shop")
    write("shop_slow", "raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        create_task("shop_slow:Shop")


def test_whatever_making_it_raises_is_one_line_with_the_place(write: Write) -> None:
    file = write(
        "shop_moody",
        SHOP
        + """
class Moody(Shop):
    def __init__(self):
        int("three")

class Leaving(Shop):
    def __init__(self):
        raise SystemExit(3)

class Half(Task):
    def start_page(self, seed):
        return ""
""",
    )
    line = file.read_text().splitlines().index('        int("three")') + 1
    assert f"ValueError: invalid literal for int() with base 10: 'three' ({file}:{line})" in refusal(
        "shop_moody:Moody"
    )
    assert "SystemExit: 3" in refusal("shop_moody:Leaving")
    assert "judge" in refusal("shop_moody:Half")


def test_a_fault_inside_libraries_only_names_the_innermost_line() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    assert describe_fault(caught.value).endswith(f"({__file__}:{caught.traceback[0].lineno + 1})")
    innermost = caught.value.with_traceback(caught.tb.tb_next)
    assert "json/decoder.py:" in describe_fault(innermost)
    assert describe_fault(KeyError("x")) == "KeyError: 'x'"


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -float("inf")])
def test_a_reward_is_finite(reward: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Outcome(reward=reward)


def test_a_goal_is_text_and_what_is_set_off_in_it() -> None:
    assert Goal("Click.") == ("Click.", ())


def test_the_installed_check_is_the_registrys() -> None:
    check = installed_task_check()
    assert check is not None
    with pytest.raises(TaskError, match=r"miniwob\.click-test"):
        check(TaskSpec(name="miniwob.click-tset"))


MANIFEST = """
apiVersion: webgym.io/v1alpha1
kind: WebGymRun
metadata:
  name: demo
spec:
  task:
    name: shop_installed:Shop
  stop:
    steps: 100
"""


def command(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The installed console script, whose search path does not begin with the current directory."""
    script = Path(sys.executable).with_name("webgym")
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [script, *arguments], cwd=cwd, env=environ, capture_output=True, text=True, timeout=60
    )


def test_the_command_finds_a_module_beside_the_manifest_and_in_the_current_directory(tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    manifest = folder / "run.yaml"
    manifest.write_text(MANIFEST)
    lost = command(tmp_path, "validate", str(manifest))
    assert lost.returncode == 2
    assert "shop_installed" in lost.stderr
    for home in (folder, tmp_path):
        (home / "shop_installed.py").write_text(SHOP)
        found = command(tmp_path, "validate", "manifests/run.yaml")
        assert (found.returncode, found.stderr) == (0, "")
        (home / "shop_installed.py").unlink()
    (folder / "shop_installed.py").write_text("class Shop(Tusk): pass\n")
    broken = command(tmp_path, "run", "manifests/run.yaml", "--out", "out")
    assert broken.returncode == 2
    assert len(broken.stderr.splitlines()) == 1
    assert f"NameError: name 'Tusk' is not defined ({folder}/shop_installed.py:1)" in broken.stderr
    assert not (tmp_path / "out").exists()
