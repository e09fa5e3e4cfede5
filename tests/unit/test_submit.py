"""``webgym submit``, ``status``, ``stop`` and ``resume`` against an API server in memory."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from client_cluster import MANIFEST, Lab, lab, soon
from operator_server import failure
from preflight_parts import deployment

from webgym import cli
from webgym.commands.validate import ValidateCommand
from webgym.errors import ExitCode, RunError, UsageError
from webgym.spec import KIND
from webgym_operator.client.describe import age, state, verdict
from webgym_operator.client.fetch import FetchCommand
from webgym_operator.client.lifecycle import ResumeCommand, StopCommand
from webgym_operator.client.refusal import ClusterError
from webgym_operator.client.status import StatusCommand
from webgym_operator.client.submit import SubmitCommand, differences
from webgym_operator.conditions import Condition

DONE = Condition("Succeeded", "True", "Completed", "it learned")
TRAINING = Condition("Succeeded", "Unknown", "Training", "")


__all__ = ["lab"]


# --- submit ----------------------------------------------------------------------------------------------------------


async def test_what_was_written_is_created_and_nothing_more(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await lab.call(SubmitCommand, str(lab.manifest), "--set", "workers.replicas=2") == 0
    assert "run demo was submitted in namespace lab" in capsys.readouterr().out
    run = lab.server.objects[KIND, "lab", "demo"]
    assert run["spec"] == {
        "task": {"name": "miniwob.click-button"},
        "workers": {"maxBrowsers": 3, "replicas": 2},
    }


async def test_a_task_of_the_workers_image_need_not_be_here(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await lab.call(SubmitCommand, str(lab.manifest), "--set", "task.name=far_away:Shop") == 0
    said = capsys.readouterr()
    assert "Not checked, it has to be in the workers' image: task 'far_away:Shop'" in said.err
    assert lab.server.objects[KIND, "lab", "demo"]["spec"]["task"] == {"name": "far_away:Shop"}
    # What is here and wrong is wrong there, too.
    assert await lab.call(SubmitCommand, str(lab.manifest), "--set", "task.name=json:Shop") == ExitCode.USAGE
    assert "Shop" in capsys.readouterr().err


async def test_what_is_wrong_with_a_manifest_is_said_as_by_validate(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.manifest.write_text(MANIFEST.replace("maxBrowsers: 3", "maxBrowser: 3\n    replicas: -1"))
    assert await lab.call(SubmitCommand, str(lab.manifest)) == ExitCode.USAGE
    said = capsys.readouterr()
    assert "maxBrowsers" in said.err
    import argparse

    parser = argparse.ArgumentParser()
    ValidateCommand().configure(parser)
    assert ValidateCommand().run(parser.parse_args([str(lab.manifest)])) == ExitCode.USAGE
    assert capsys.readouterr() == said
    assert not lab.server.of(KIND)


async def test_a_run_of_a_newer_definition_is_not_called_invalid(lab: Lab) -> None:
    lab.add_run(spec={"wings": {"speed": 2}})
    older = r"older than the cluster's CustomResourceDefinition.* spec\.wings; upgrade it"
    with pytest.raises(RunError, match=older):
        await lab.call(FetchCommand, "demo", "--out", str(lab.folder / "out"))
    with pytest.raises(RunError, match=older):
        await lab.call(SubmitCommand, str(lab.manifest))


async def test_the_same_run_twice_is_one(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    await lab.call(SubmitCommand, str(lab.manifest))
    capsys.readouterr()
    assert await lab.call(SubmitCommand, str(lab.manifest), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["created"], told["name"], told["state"]) == (False, "demo", "Unseen")
    # A server writes its defaults into the object, which makes it no other run.
    run = lab.server.objects[KIND, "lab", "demo"]
    lab.server.put(run | {"spec": run["spec"] | {"seed": 0}})
    assert await lab.call(SubmitCommand, str(lab.manifest)) == 0


async def test_another_run_of_the_name_is_named_with_what_differs(lab: Lab) -> None:
    lab.add_run(spec={"seed": 3, "stop": {"seconds": 60}})
    with pytest.raises(
        RunError, match=r"demo exists already in namespace lab .*spec\.seed, spec\.stop\.seconds"
    ):
        await lab.call(SubmitCommand, str(lab.manifest))
    lab.server.drop(KIND, "demo")
    lab.add_run()
    lab.set_status("demo", DONE)
    with pytest.raises(RunError, match=r"the same, but over; --replace"):
        await lab.call(SubmitCommand, str(lab.manifest))


async def test_replace_makes_it_anew(lab: Lab) -> None:
    lab.add_run(spec={"seed": 3})
    before = lab.server.objects[KIND, "lab", "demo"]["metadata"]["uid"]
    assert await lab.call(SubmitCommand, str(lab.manifest), "--replace") == 0
    after = lab.server.objects[KIND, "lab", "demo"]
    assert after["metadata"]["uid"] != before
    assert "seed" not in after["spec"]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (DONE, ExitCode.OK),
        (Condition("Succeeded", "False", "BackoffLimitExceeded", "no"), ExitCode.FAILURE),
        (Condition("Succeeded", "False", "Diverged", "nan"), ExitCode.DIVERGED),
        (Condition("Succeeded", "False", "InvalidConfiguration", "no such task"), ExitCode.USAGE),
    ],
)
async def test_wait_ends_with_the_verdict(
    lab: Lab, capsys: pytest.CaptureFixture[str], end: Condition, code: ExitCode
) -> None:
    waiting = asyncio.create_task(lab.call(SubmitCommand, str(lab.manifest), "--wait"))
    await soon(lambda: lab.server.requests[f"WATCH {KIND}"])
    lab.set_status("demo", TRAINING, steps=1200, desiredReplicas=1)
    await soon(lambda: lab.server.requests[f"WATCH {KIND}"] > 1)
    lab.set_status("demo", end, success=0.97)
    assert await waiting == code
    said = capsys.readouterr()
    assert "Training  workers 0/1  steps 1,200" in said.err
    assert f"run demo in namespace lab: {end.reason}" in said.out


async def test_wait_notices_that_the_run_is_deleted(lab: Lab) -> None:
    waiting = asyncio.create_task(lab.call(SubmitCommand, str(lab.manifest), "--wait"))
    await soon(lambda: lab.server.requests[f"WATCH {KIND}"])
    lab.server.drop(KIND, "demo")
    with pytest.raises(RunError, match="run demo was deleted"):
        await waiting


async def test_namespaces_that_contradict_are_refused(lab: Lab) -> None:
    lab.manifest.write_text(MANIFEST.replace("name: demo", "name: demo\n  namespace: here"))
    with pytest.raises(UsageError, match=r"metadata.namespace is here, and --namespace there"):
        await lab.call(SubmitCommand, str(lab.manifest), "--namespace", "there")
    assert await lab.call(SubmitCommand, str(lab.manifest)) == 0
    assert (KIND, "here", "demo") in lab.server.objects


def test_differences_name_paths() -> None:
    old = {"a": 1, "b": {"c": 2, "d": [1]}, "gone": 1}
    new = {"a": 1, "b": {"c": 3, "d": [1]}, "new": None, "more": 0}
    assert list(differences(old, new)) == ["spec.b.c", "spec.gone", "spec.more"]


# --- what users cause ------------------------------------------------------------------------------------------------


async def test_no_way_to_a_cluster_is_one_line(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.config.unlink()
    with pytest.raises(UsageError, match="there is no such kubeconfig; correct --kubeconfig"):
        await lab.call(StatusCommand)
    lab.config.write_text("{")
    with pytest.raises(UsageError, match="is no kubeconfig"):
        await lab.call(StatusCommand)
    lab.write_config(lab.server.url)
    with pytest.raises(UsageError, match=r"--context there: .* has here"):
        await lab.call(StatusCommand, "--context", "there")
    lab.write_config("http://127.0.0.1:1")
    with pytest.raises(
        ClusterError, match=r"127.0.0.1:1 of context here cannot be reached: Connection refused"
    ):
        await lab.call(StatusCommand)


def test_without_the_extra_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from importlib.metadata import EntryPoint

    listed = {"submit": "submit:SubmitCommand", "status": "status:StatusCommand", "logs": "logs:LogsCommand"}
    listed |= {
        "stop": "lifecycle:StopCommand",
        "resume": "lifecycle:ResumeCommand",
        "fetch": "fetch:FetchCommand",
    }
    found = {
        name: EntryPoint(name, f"webgym_operator.client.{where}", cli.COMMAND_GROUP)
        for name, where in listed.items()
    }
    monkeypatch.setattr(cli, "_find_commands", lambda: found)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    file = tmp_path / "run.yaml"
    file.write_text(MANIFEST)
    for name in listed:
        arguments = {"status": [], "submit": [str(file)]}.get(name, ["demo"])
        assert cli.main([name, *arguments]) == ExitCode.USAGE
        said = capsys.readouterr().err.splitlines()[-1]
        assert f"webgym {name} needs the operator extra: pip install 'webgym-platform[operator]'" in said


async def test_a_missing_right_is_named(lab: Lab) -> None:
    message = (
        'webgymruns.webgym.io is forbidden: User "jo" cannot list resource "webgymruns" in API group "webgym.io" '
        'in the namespace "lab"'
    )
    lab.server.refuse = lambda verb, kind, body: failure(403, "Forbidden", message)
    with pytest.raises(
        ClusterError, match=r"jo may not list webgymruns\.webgym\.io in namespace lab"
    ) as caught:
        await lab.call(StatusCommand)
    assert caught.value.by_rights
    lab.server.refuse = lambda verb, kind, body: failure(401, "Unauthorized", "Unauthorized")
    with pytest.raises(ClusterError, match="does not accept the credentials of context here"):
        await lab.call(StatusCommand)


async def test_a_cluster_without_the_definition_is_told_what_to_install(lab: Lab) -> None:
    lab.server.refuse = lambda verb, kind, body: (
        web.Response(status=404, text="404 page not found\n") if kind == KIND else None
    )
    for command, arguments in (
        (SubmitCommand, [str(lab.manifest)]),
        (StatusCommand, []),
        (StopCommand, ["demo"]),
    ):
        with pytest.raises(ClusterError, match=r"does not know WebGymRun .* helm install"):
            await lab.call(command, *arguments)


async def test_an_unknown_run_is_told_with_the_nearest(lab: Lab) -> None:
    with pytest.raises(UsageError, match="no run demo in namespace lab, nor any other"):
        await lab.call(StatusCommand, "demo")
    lab.add_run(name="demo-1")
    with pytest.raises(UsageError, match="did you mean demo-1"):
        await lab.call(StatusCommand, "demo")
    with pytest.raises(UsageError, match="there is no namespace nowhere"):
        await lab.call(StatusCommand, "demo", "-n", "nowhere")
    lab.add("Namespace", "other", namespace="")
    with pytest.raises(UsageError, match="but one in lab: add --namespace lab"):
        await lab.call(StatusCommand, "demo-1", "-n", "other")


# --- status, stop and resume -----------------------------------------------------------------------------------------


async def test_status_says_when_nobody_keeps_it_up(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.add_run()
    for condition, arguments, told in (
        (TRAINING, (), True),
        (TRAINING, ("demo",), True),
        (TRAINING, ("demo", "--json"), False),
        (DONE, ("demo",), False),
    ):
        lab.set_status("demo", condition)
        assert await lab.call(StatusCommand, *arguments) == 0
        said = capsys.readouterr().err
        assert ("nobody looks after it now, so this may be old: no operator is installed" in said) == told
    lab.server.put(deployment())
    lab.set_status("demo", TRAINING)
    assert await lab.call(StatusCommand, "demo") == 0
    assert not capsys.readouterr().err


async def test_status_lists_and_describes(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.add_run()
    lab.set_status(
        "demo",
        TRAINING,
        Condition("Ready", "False", "WorkersNotReady", "none of 2 workers is ready"),
        steps=12345,
        stepsPerSecond=51.2,
        success=0.5,
        desiredReplicas=2,
        timeLeftSeconds=70,
        restarts=1,
        failures={"browser": 1},
        lastFailure="worker-1: no browser",
    )
    lab.add_pod("learner")
    lab.add_pod(
        "worker",
        phase="Pending",
        conditions=[
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no cpu"}
        ],
    )
    assert await lab.call(StatusCommand) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "STATE", "WORKERS", "STEPS", "SUCCESS", "AGE"]
    assert row.split()[:5] == ["demo", "Training", "0/2", "12,345", "0.50"]
    assert await lab.call(StatusCommand, "demo") == 0
    said = capsys.readouterr().out
    for part in (
        "workers 0/2  steps 12,345 (51/s)  success 0.50  1:10 left",
        "1 failures counted (browser 1)",
        "last failure: worker-1: no browser",
        "Ready      False    WorkersNotReady: none of 2 workers is ready",
        "demo-learner-0-0  Running, ready",
        "demo-worker-0-0   Pending: Unschedulable: no cpu",
    ):
        assert part in said
    assert await lab.call(StatusCommand, "demo", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["over"], told["figures"]["steps"], len(told["pods"])) == (
        "Training",
        False,
        12345,
        2,
    )


def test_a_state_is_one_word() -> None:
    metadata = {"name": "a", "generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z"}
    run: dict[str, Any] = {"metadata": metadata, "spec": {}}
    assert (state(run), verdict(run), age(run, 1_767_225_600 + 150)) == ("Unseen", None, "2m")
    run["spec"]["suspend"] = True
    run["status"] = {"conditions": [{"type": "Succeeded", "status": "Unknown", "reason": "Suspended"}]}
    assert state(run) == "Suspending"
    run["status"]["conditions"].append({"type": "Suspended", "status": "True", "reason": "Suspended"})
    assert state(run) == "Suspended"
    # The verdict on a spec that has been mended since is not the last.
    invalid = {"type": "Succeeded", "status": "False", "reason": "InvalidSpec", "observedGeneration": 1}
    run["status"]["conditions"] = [invalid]
    assert verdict(run) is None
    run["status"]["conditions"] = [invalid | {"observedGeneration": 2}]
    assert verdict(run) == ExitCode.USAGE


async def test_stop_suspends_and_resume_goes_on(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.add_run()
    lab.set_status("demo", TRAINING)
    stopping = asyncio.create_task(lab.call(StopCommand, "demo", "--wait"))
    await soon(lambda: lab.server.objects[KIND, "lab", "demo"]["spec"].get("suspend"))
    suspended = Condition("Suspended", "True", "Suspended", "")
    lab.set_status("demo", Condition("Succeeded", "Unknown", "Suspended", ""), suspended)
    assert await stopping == 0
    assert "run demo is stopped; webgym resume" in capsys.readouterr().out
    assert await lab.call(ResumeCommand, "demo", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["changed"]
    assert lab.server.objects[KIND, "lab", "demo"]["spec"]["suspend"] is False
    assert await lab.call(ResumeCommand, "demo") == 0
    assert "was not stopped" in capsys.readouterr().out


async def test_a_run_that_is_over_is_neither_stopped_nor_resumed(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.add_run()
    lab.set_status("demo", DONE)
    assert await lab.call(StopCommand, "demo") == 0
    assert "is over (Completed): there is nothing to stop" in capsys.readouterr().out
    with pytest.raises(RunError, match="is over"):
        await lab.call(ResumeCommand, "demo")
    assert "suspend" not in lab.server.objects[KIND, "lab", "demo"]["spec"]


async def test_wait_outlives_an_api_server_that_is_away(lab: Lab) -> None:
    waiting = asyncio.create_task(lab.call(SubmitCommand, str(lab.manifest), "--wait"))
    await soon(lambda: lab.server.requests[f"WATCH {KIND}"])
    away = [1]

    def refuse(verb: str, kind: str, body: Any) -> web.Response | None:
        away[0] -= 1
        return failure(503, "ServiceUnavailable", "coming up") if away[0] >= 0 else None

    lab.server.refuse = refuse
    lab.set_status("demo", TRAINING)
    await soon(lambda: away[0] < 0)
    lab.set_status("demo", DONE)
    assert await waiting == 0
