"""``webgym doctor``: how checks depend on each other, and what the page and the JSON object say of them."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from webgym.errors import BrowserError, UsageError
from webgym.spec import Workers
from webgym_workers.capacity import Machine, browser_count
from webgym_workers.doctor import checks
from webgym_workers.doctor.command import DoctorCommand
from webgym_workers.doctor.examination import Check, examine
from webgym_workers.doctor.finding import CheckResult, Finding, Status
from webgym_workers.doctor.host import Host
from webgym_workers.doctor.limits import Limits
from webgym_workers.doctor.report import page, summary_object, verdict
from webgym_workers.doctor.setting import Setting, Wanted

FACTS = {"processor": "Abacus 9", "system": "Linux 6.1"}
HERE = Machine(2.0, 4 * 2**30)


def setting() -> Setting:
    return Setting(Wanted(), Host("Linux"), HERE, Limits())


def finds(status: Status = Status.OK, usable: bool | None = None) -> Callable[[Setting], Awaitable[Finding]]:
    async def check(setting: Setting) -> Finding:
        return Finding(status, "so it is", usable=usable)

    return check


def raises(error: Exception) -> Callable[[Setting], Awaitable[Finding]]:
    async def check(setting: Setting) -> Finding:
        raise error

    return check


async def hangs(setting: Setting) -> Finding:
    await asyncio.Event().wait()
    raise AssertionError


async def statuses(*tried: Check, seconds: float = 30.0) -> dict[str, Finding]:
    return {result.name: result.finding for result in await examine(tried, setting(), seconds=seconds)}


async def test_what_builds_on_a_failed_check_is_skipped_and_says_so() -> None:
    found = await statuses(
        Check("a", finds(Status.FAILED)),
        Check("b", finds(), needs=("a",)),
        Check("c", finds(), needs=("b",)),
        Check("d", finds(), after=("a",)),
    )
    assert [f.status for f in found.values()] == [Status.FAILED, Status.SKIPPED, Status.SKIPPED, Status.OK]
    assert (found["b"].found, found["c"].found) == ("not tried: see a", "not tried: see b")


async def test_a_warning_can_be_built_on_unless_there_is_nothing_to_use() -> None:
    found = await statuses(
        Check("slow", finds(Status.WARNING)),
        Check("absent", finds(Status.WARNING, usable=False)),
        Check("on slow", finds(), needs=("slow",)),
        Check("on absent", finds(), needs=("absent",)),
    )
    assert found["on slow"].status is Status.OK
    assert found["on absent"].status is Status.SKIPPED


async def test_errors_of_any_kind_fail_their_check_and_no_other() -> None:
    found = await statuses(
        Check("ours", raises(BrowserError("it ended\nat once"))),
        Check("module", raises(ModuleNotFoundError("no", name="gymnasium"))),
        Check("fault", raises(ZeroDivisionError("oh"))),
        Check("fine", finds()),
    )
    assert found["ours"].found == "it ended at once"
    assert "gymnasium" in found["module"].found
    assert "pip install" in found["module"].mend
    assert "ZeroDivisionError: oh" in found["fault"].found
    assert "report" in found["fault"].mend
    assert found["fine"].status is Status.OK


async def test_a_part_that_windows_has_no_modules_for() -> None:
    windows = Setting(Wanted(), Host("Windows"), HERE, Limits())
    (result,) = await examine([Check("browser", raises(ModuleNotFoundError("no", name="fcntl")))], windows)
    assert result.finding.found == "this part of WebGym does not run on Windows"
    assert "WSL 2" in result.finding.mend


async def test_a_check_that_hangs_ends_at_its_deadline() -> None:
    found = await statuses(Check("stuck", hangs, deadline=0.05), Check("fine", finds()))
    assert found["stuck"].status is Status.FAILED
    assert "no end within" in found["stuck"].found
    assert found["fine"].status is Status.OK


async def test_all_together_have_a_deadline() -> None:
    found = await statuses(Check("stuck", hangs), Check("next", finds(), after=("stuck",)), seconds=0.05)
    assert found["stuck"].status is Status.WARNING  # not its own fault, perhaps
    assert not found["stuck"].can_be_used
    assert found["next"].status is Status.SKIPPED
    assert "took too long" in found["next"].found


async def test_what_measures_time_runs_when_nothing_else_does() -> None:
    busy: list[str] = []
    at_work: list[Sequence[str]] = []

    def slow(name: str) -> Callable[[Setting], Awaitable[Finding]]:
        async def check(setting: Setting) -> Finding:
            busy.append(name)
            await asyncio.sleep(0.01)
            return Finding(Status.OK, "")

        return check

    tried = [Check("time", slow("time"), alone=True), Check("a", slow("a")), Check("b", slow("b"))]
    results = await examine(tried, setting(), at_work.append)
    assert [result.name for result in results] == ["time", "a", "b"]
    assert busy[-1] == "time"
    assert [names for names in at_work if "time" in names] == [["time"]]
    assert at_work[-1] == []


def test_each_check_comes_after_those_it_needs() -> None:
    names = [check.name for check in checks.CHECKS]
    assert len(set(names)) == len(names)
    for index, check in enumerate(checks.CHECKS):
        assert {*check.needs, *check.after} <= set(names[:index])


RESULTS = [
    CheckResult("browser", Finding(Status.OK, "Chrome/156 starts", numbers={"start_seconds": 0.2}), 0.25),
    CheckResult("display", Finding(Status.WARNING, "no Xvfb", "apt-get install -y xvfb"), 0.0),
    CheckResult("screen", Finding(Status.SKIPPED, "not tried: see display"), 0.0),
    CheckResult("open files", Finding(Status.FAILED, "64 allowed; a browser needs 123, " * 3, "ulimit -n 4096"), 0),
]  # fmt: skip


def test_the_page_fits_sixty_columns() -> None:
    console = Console(width=60, file=io.StringIO(), force_terminal=False)
    with console.capture() as capture:
        console.print(page(RESULTS, FACTS, HERE, 3, 7.6))
    text = capture.get()
    assert all(len(line.rstrip()) <= 60 for line in text.splitlines())
    assert "mend: apt-get install -y xvfb" in text
    assert "Abacus 9, Linux 6.1; 2 cores and 4.0 GiB to use: 3 browsers" in " ".join(text.split())
    assert "failed: open files; warnings: display. (8 s)" in " ".join(text.split())


def test_the_verdict() -> None:
    assert verdict(RESULTS[:1]) == "All is well."
    assert verdict(RESULTS[:3]) == "WebGym can run here; warnings: display."
    assert verdict(RESULTS) == "WebGym cannot run here yet; failed: open files; warnings: display."


def test_the_object_for_programs() -> None:
    found = summary_object(RESULTS, FACTS, 3, 7.6)
    assert found["ok"] is False
    assert found["machine"] == FACTS
    assert found["checks"][0] == {
        "name": "browser",
        "status": "ok",
        "found": "Chrome/156 starts",
        "mend": "",
        "seconds": 0.25,
        "start_seconds": 0.2,
    }
    assert summary_object(RESULTS[:3], FACTS, 3, 7.6)["ok"] is True


def run_command(monkeypatch: pytest.MonkeyPatch, tried: Sequence[Check], *arguments: str) -> int:
    monkeypatch.setattr(checks, "CHECKS", tried)
    parser = argparse.ArgumentParser()
    DoctorCommand().configure(parser)
    return DoctorCommand().run(parser.parse_args(arguments))


def test_the_command_exits_with_1_when_something_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, [Check("a", finds(Status.WARNING))]) == 0
    assert "warning a so it is" in capsys.readouterr().out
    assert run_command(monkeypatch, [Check("a", finds(Status.FAILED))], "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    assert {"cores", "memory_bytes"} <= set(found["machine"])


def test_a_manifest_says_what_to_check_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    seen: list[Wanted] = []

    async def look(setting: Setting) -> Finding:
        seen.append(setting.wanted)
        return Finding(Status.OK, "")

    file = tmp_path / "run.yaml"
    file.write_text(
        "apiVersion: webgym.io/v1alpha1\nkind: WebGymRun\nmetadata: {name: a}\n"
        "spec: {task: {name: miniwob.click-button}, browser: {executable: /bin/true, frames: SharedMemory}}\n"
    )
    override = "--set", "observation.frame=true"
    assert run_command(monkeypatch, [Check("a", look)], str(file), *override, "--json") == 0
    assert seen[0].browser.executable == "/bin/true"
    assert seen[0].needs_display
    with pytest.raises(UsageError, match="name its file"):
        run_command(monkeypatch, [], *override)


def test_a_synchronous_run_has_one_browser(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    seen: list[Setting] = []

    async def look(setting: Setting) -> Finding:
        seen.append(replace(setting, machine=Machine(16.0, 64 * 2**30)))
        return Finding(Status.OK, "")

    file = tmp_path / "run.yaml"
    file.write_text(
        "apiVersion: webgym.io/v1alpha1\nkind: WebGymRun\nmetadata: {name: a}\n"
        "spec: {task: {name: miniwob.click-button}, mode: Synchronous}\n"
    )
    assert run_command(monkeypatch, [Check("a", look)], str(file), "--json") == 0
    assert json.loads(capsys.readouterr().out)["browsers"] == 1
    run_command(monkeypatch, [Check("a", look)], str(file), "--set", "mode=Lockstep")
    assert [setting.browsers for setting in seen] == [1, browser_count(Workers(), seen[0].machine)]
    assert seen[1].browsers > 1
