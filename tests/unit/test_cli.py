"""The ``webgym`` command: how subcommands are found, and what a person sees when something is wrong."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from webgym import cli
from webgym.errors import BrokerError, ExitCode

GOOD = """\
apiVersion: webgym.io/v1alpha1
kind: WebGymRun
metadata:
  name: a
spec:
  task:
    name: miniwob.click-button
"""


class Fine:
    name = "fine"
    help = "does nothing, 100%% well"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--code", type=int, default=0)

    def run(self, args: argparse.Namespace) -> int:
        return int(args.code)


class Failing(Fine):
    def run(self, args: argparse.Namespace) -> int:
        raise BrokerError("redis://h is not there;\nstart it")


class Interrupted(Fine):
    def run(self, args: argparse.Namespace) -> int:
        raise KeyboardInterrupt


class NeedsMore(Fine):
    def run(self, args: argparse.Namespace) -> int:
        import nothing_of_this_name  # type: ignore[import-not-found]  # noqa: F401

        return 0


class Faulty(Fine):
    def run(self, args: argparse.Namespace) -> int:
        import webgym.nothing_of_this_name  # type: ignore[import-not-found]  # noqa: F401

        return 0


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(name: str, target: str) -> EntryPoint:
        return EntryPoint(name, f"{__name__}:{target}", cli.COMMAND_GROUP)

    found = {
        "fine": entry("fine", "Fine"),
        "failing": entry("failing", "Failing"),
        "interrupted": entry("interrupted", "Interrupted"),
        "run": entry("run", "NeedsMore"),
        "faulty": entry("faulty", "Faulty"),
        "worker": EntryPoint("worker", "nothing_of_this_name:Worker", cli.COMMAND_GROUP),
        "tasks": EntryPoint("tasks", "webgym_workers.tasks.command:TasksCommand", cli.COMMAND_GROUP),
        "validate": EntryPoint("validate", "webgym.commands.validate:ValidateCommand", cli.COMMAND_GROUP),
    }
    monkeypatch.setattr(cli, "_find_commands", lambda: found)


def test_the_exit_code_is_the_command_s() -> None:
    assert cli.main(["fine"]) == 0
    assert cli.main(["fine", "--code", "7"]) == 7


def test_an_error_of_ours_is_one_line_and_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["failing"]) == ExitCode.BROKER_LOST
    assert capsys.readouterr().err == "webgym: redis://h is not there; start it\n"


def test_ctrl_c_is_130() -> None:
    assert cli.main(["interrupted"]) == 130


def test_every_command_that_may_lack_something_names_its_extra_and_no_other_does() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    commands = set(pyproject["entry-points"][cli.COMMAND_GROUP])
    planned = {"doctor", "operator"}
    assert set(cli._EXTRAS) - planned <= commands
    assert set(cli._ORDER) - planned <= commands
    assert {extra for extras in cli._EXTRAS.values() for extra in extras} <= set(
        pyproject["optional-dependencies"]
    )


def test_wrong_arguments_are_exit_code_2() -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["fine", "--nope"])
    assert caught.value.code == 2


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["valdate", "x"]) == 2
    assert capsys.readouterr().err == "webgym: there is no command valdate; did you mean validate?\n"
    assert cli.main(["xyz"]) == 2
    assert "there are fine, failing" in capsys.readouterr().err


def test_a_part_that_is_not_installed_names_its_extra(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run"]) == 2
    assert capsys.readouterr().err == (
        "webgym: webgym run needs the worker and learner extras: "
        "pip install 'webgym-platform[worker,learner]' (nothing_of_this_name is missing)\n"
    )
    assert cli.main(["worker"]) == 2
    assert "needs the worker extra: pip install 'webgym-platform[worker]'" in capsys.readouterr().err


def test_a_module_of_ours_that_is_missing_is_a_fault_and_no_extra() -> None:
    with pytest.raises(ModuleNotFoundError):
        cli.main(["faulty"])


def test_help_lists_all_commands_also_those_not_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    text = capsys.readouterr().out
    assert "does nothing, 100% well" in text
    assert "(not installed: needs the worker extra)" in text


def test_the_other_project_of_the_name_is_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    info = tmp_path / "webgym-0.3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: webgym\nVersion: 0.3.1\n")
    assert cli.main(["fine"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cli.main(["fine"]) == 0
    message = capsys.readouterr().err
    assert "webgym 0.3.1 from PyPI is another project" in message
    assert "pip uninstall webgym" in message


def test_validate_says_ok_and_what_would_be_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(GOOD)
    assert cli.main(["validate", str(file), "--set", "stop.seconds=5"]) == 0
    assert "run.yaml: OK: a trains miniwob.click-button with DQN" in (text := capsys.readouterr().out)
    assert "until 5 s" in text
    assert cli.main(["validate", str(file), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["valid"] is True
    assert result["manifest"]["spec"]["learner"]["batchSize"] == 128


def test_validate_lists_every_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(GOOD + "  seed: -1\n  nope: 2\n")
    assert cli.main(["validate", str(file)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert cli.main(["validate", str(file), "--json"]) == 2
    result = json.loads(capsys.readouterr().out)
    assert [problem["path"] for problem in result["problems"]] == ["spec.seed", "spec.nope"]
    assert cli.main(["validate", str(tmp_path / "none.yaml"), "--json"]) == 2
    assert "no such file" in json.loads(capsys.readouterr().out)["problems"][0]["message"]


def test_validate_reads_standard_input() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "webgym", "validate", "-", "--resolved"],
        input=GOOD,
        text=True,
        capture_output=True,
    )
    assert run.returncode == 0, run.stderr
    assert "batchSize: 128" in run.stdout


def webgym(command: str, redirections: str, **environ: str) -> tuple[int, str]:
    """Run ``webgym`` under a shell's redirections; its exit code, and what came out of stderr or by ``3>``."""
    line = f"exec {shlex.quote(sys.executable)} -m webgym {command} 3>&2 {redirections}"
    done = subprocess.run(
        ["/bin/sh", "-c", line], stderr=subprocess.PIPE, text=True, env={**os.environ, **environ}, timeout=60
    )
    return done.returncode, done.stderr


needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")


@needs_full
@pytest.mark.parametrize(
    ("command", "redirection", "why"),
    [
        ("--help", ">/dev/full", "No space left on device"),
        ("tasks", ">/dev/full", "No space left on device"),
        ("validate {file}", ">/dev/full", "No space left on device"),
        ("crds --stdout", ">&-", "Bad file descriptor"),
        ("--version", ">&-", "Bad file descriptor"),
    ],
)
def test_what_cannot_be_said_is_told_in_one_line(
    command: str, redirection: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "run.yaml").write_text(GOOD)
    told = webgym(command.format(file=tmp_path / "run.yaml"), redirection)
    assert told == (1, f"webgym: standard output cannot be written: {why}\n")


@needs_full
def test_without_a_stderr_the_exit_code_still_tells(tmp_path: Path) -> None:
    missing = f"validate {tmp_path}/none.yaml"
    assert webgym(missing, "2>&-") == (2, "")
    assert webgym(missing, "2>/dev/full") == (2, "")
    assert webgym(missing, "<&- >&- 2>&-") == (2, "")
    assert webgym("validate --nope", "2>/dev/full") == (2, "")
    assert webgym("--version", ">/dev/full 2>&-") == (1, "")
    assert webgym("--version", ">/dev/full", PYTHONUNBUFFERED="1")[0] == 1


def test_an_error_is_told_although_its_output_is_lost(tmp_path: Path) -> None:
    code, told = webgym(f"validate {tmp_path}/none.yaml --json", ">&-")
    assert code == 2
    assert told == "webgym: standard output cannot be written: Bad file descriptor\n"


def test_a_file_never_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(GOOD)
    assert webgym("validate -", "<&-") == (2, "standard input: cannot be read: Bad file descriptor\n")
    # Read with the lowest free number, which printing would then write to.
    assert webgym(f"validate {tmp_path}/run.yaml", "<&- >&-")[0] == 1
    assert (tmp_path / "run.yaml").read_text() == GOOD


def test_letters_that_a_terminal_lacks_are_escaped(tmp_path: Path) -> None:
    file = tmp_path / "läuft.yaml"
    file.write_text(GOOD)
    code, told = webgym(f"validate {file}", ">&3", PYTHONIOENCODING="ascii")
    assert (code, told.partition(": OK")[0]) == (0, str(file).replace("ä", r"\xe4"))


def test_control_characters_of_a_user_never_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(GOOD + '  "\\e[31mkey\\n": "\\e[2J"\n  mode: "\\e[0m"\n')
    hostile = "\x1b]0;gone\x07\u202e"
    name = f"{tmp_path}/{hostile}"
    assert cli.main(["validate", str(file)]) == 2
    assert cli.main(["validate", name]) == 2
    assert cli.main([hostile]) == 2
    assert cli.main(["validate", str(file), "--set", f"{hostile}=1"]) == 2
    assert cli.main(["validate", str(file), "--set", f"seed={hostile}"]) == 2
    with pytest.raises(SystemExit):
        cli.main(["validate", str(file), hostile])
    Path(name).write_text(GOOD)
    assert cli.main(["validate", name]) == 0
    assert cli.main(["tasks", hostile]) == 1
    out, err = capsys.readouterr()
    assert all(character.isprintable() for character in (out + err).replace("\n", ""))
    assert r"\x1b[31mkey\n" in err
    assert len([line for line in err.splitlines() if "mkey" in line]) == 3


def test_a_reader_that_leaves_early_is_no_error() -> None:
    writer = subprocess.Popen(
        [sys.executable, "-m", "webgym", "crds", "--stdout"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stdout.readline()
    writer.stdout.close()
    assert writer.wait(30) == 0
    assert writer.stderr is not None
    assert writer.stderr.read() == b""
    writer.stderr.close()


def test_the_command_itself_imports_nothing_heavy() -> None:
    code = (
        "import sys, webgym.cli, webgym.commands.validate, webgym.commands.crds, webgym.commands.run; "
        "print([m for m in ('pydantic', 'numpy', 'redis', 'ruamel', 'torch', 'rich') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert run.stdout.strip() == "[]"


def test_crds_check_tells_stale_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from webgym.commands.crds import CRD_FILE, CrdsCommand

    def run(*arguments: str) -> int:
        parser = argparse.ArgumentParser()
        CrdsCommand().configure(parser)
        return CrdsCommand().run(parser.parse_args(["--root", str(tmp_path), *arguments]))

    assert run("--check") == 1
    assert not (tmp_path / CRD_FILE).exists()
    assert run() == 0
    assert run("--check") == 0
    (tmp_path / CRD_FILE).write_text("stale")
    capsys.readouterr()
    assert run("--check") == 1
    assert f"{CRD_FILE} is not what the models give" in capsys.readouterr().err
