"""``webgym fetch`` and ``webgym logs`` against a cluster in memory, whose ``tar`` is a real one."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from pathlib import Path

import pytest
from aiohttp import web
from client_cluster import Lab, lab, soon
from operator_runs import SETTINGS, UID, VERSIONS, make_run, schema_errors

from webgym.errors import OutputError, RunError
from webgym.manifest import load_manifest
from webgym.rundir import RunDirectory
from webgym.spec import KIND
from webgym_operator.client.archive import BrokenArchive, extract
from webgym_operator.client.fetch import FetchCommand
from webgym_operator.client.fetched import local_manifest, summary_facts
from webgym_operator.client.logs import LogsCommand, readable
from webgym_operator.client.refusal import ClusterError
from webgym_operator.client.volume import reader_pod
from webgym_operator.conditions import Condition, merge_conditions

__all__ = ["lab"]

FOLDER = f"demo-{UID[:8]}"


@pytest.fixture(autouse=True)
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have tests of their own; they take seconds to draw."""
    monkeypatch.setattr("webgym_operator.client.fetch._report", lambda target: None)


def fill(lab: Lab) -> None:
    lab.write_checkpoint(FOLDER, 100)
    lab.write_checkpoint(FOLDER, 200)
    folder = lab.volume / FOLDER
    (folder / "metrics.jsonl").write_text('{"steps": 1}\n')
    (folder / "checkpoints" / "best.json").write_text("{}")
    (folder / "checkpoints" / ".new-step-300-7").mkdir()
    (folder / ".webgym").mkdir()
    (folder / ".webgym" / "lock").write_text("1")


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


FETCHED = [
    *(".webgym/uid", "checkpoints/best.json"),
    *(f"checkpoints/step-{step}/{name}" for step in (100, 200) for name in ("manifest.json", "online.npz")),
    *("metrics.jsonl", "run.yaml", "summary.json", "webgymrun.json"),
]


# --- fetch -----------------------------------------------------------------------------------------------------------


async def test_a_run_that_lives_is_read_through_its_learner(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.add_run(spec={"workers": {"replicas": 4, "image": "own:1"}, "redis": {"url": "redis://there:6379/0"}})
    lab.add_pod("learner")
    fill(lab)
    out = lab.folder / "out"
    assert await lab.call(FetchCommand, "demo", "--out", str(out)) == 0
    assert "2 checkpoints, 0.6 MB" in capsys.readouterr().out
    assert names(out) == FETCHED
    assert lab.server.requests["POST Pod"] == 0
    # What it is now is a folder that webgym eval takes, with nothing in it that only the cluster has.
    assert RunDirectory.open(out).uid == UID
    assert json.loads((out / "summary.json").read_text())["out"] == str(out)
    spec = load_manifest(out / "run.yaml").spec
    assert (spec.redis.url, spec.workers.replicas, spec.workers.image) == (None, 1, None)
    assert json.loads((out / "webgymrun.json").read_text())["spec"]["workers"]["replicas"] == 4
    assert not list(lab.folder.glob(".out.*"))


async def test_a_run_that_is_over_is_read_through_a_pod_of_its_own(lab: Lab) -> None:
    lab.add_run()
    lab.set_status("demo", Condition("Succeeded", "True", "Completed", ""))
    lab.add_pod("learner", phase="Succeeded")
    lab.add("PersistentVolumeClaim", FOLDER)
    fill(lab)
    fetching = asyncio.create_task(lab.call(FetchCommand, "demo", "--out", str(lab.folder / "out"), "--json"))
    await soon(lambda: lab.server.requests["POST Pod"])
    made = next(pod for pod in lab.server.of("Pod") if "fetch" in pod["metadata"]["name"])
    container = made["spec"]["containers"][0]
    assert (container["image"], container["imagePullPolicy"]) == ("learner:1", "Never")
    lab.server.start_pods()
    assert await fetching == 0
    assert names(lab.folder / "out") == FETCHED
    lab.server.start_pods()
    assert lab.server.names("Pod") == ["demo-learner-0-0"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Condition("Succeeded", "Unknown", "Training", "training"), (None, None, None)),
        (
            Condition("Succeeded", "True", "Completed", "training ended (success), success rate 1"),
            ("success", 0, None),
        ),
        (Condition("Succeeded", "True", "Completed", "training ended (done)"), ("done", 0, None)),
        (
            Condition("Succeeded", "False", "DeadlineExceeded", "activeDeadlineSeconds: not done after 9 s"),
            ("DeadlineExceeded", 1, "activeDeadlineSeconds: not done after 9 s"),
        ),
        (
            Condition("Succeeded", "False", "Diverged", "the loss is not finite"),
            ("Diverged", 4, "the loss is not finite"),
        ),
    ],
)
def test_the_summary_says_how_the_run_ended(condition: Condition, expected: tuple[object, ...]) -> None:
    over = condition.status != "Unknown"
    status = {
        "conditions": merge_conditions({}, [condition], generation=1, now=0.0),
        "startTime": "2026-12-03T10:00:00Z",
        **({"completionTime": "2026-12-03T10:01:30Z"} if over else {}),
        "failures": {"browser": 2},
    }
    run = make_run({"task": {"name": "miniwob.click-link"}})
    assert run.manifest is not None
    facts = summary_facts(
        {"metadata": {"name": "demo", "generation": 1}, "spec": {}, "status": status}, run.manifest
    )
    assert (facts["stop_reason"], facts["exit_code"], facts["message"]) == expected
    assert facts["seconds"] == (90.0 if over else None)
    assert (facts["name"], facts["tasks"], facts["restarts"]) == (
        "demo",
        ["miniwob.click-link"],
        {"browser": 2},
    )
    # The report must not show the machine that fetched it as the one that trained.
    assert "processor" not in facts["machine"]


async def test_the_pod_goes_whatever_happens(lab: Lab) -> None:
    lab.add_run()
    lab.add("PersistentVolumeClaim", FOLDER)
    fetch = ("demo", "--out", str(lab.folder / "out"), "--image", "tar:1")
    fetching = asyncio.create_task(lab.call(FetchCommand, *fetch, "--timeout", "0.5"))
    with pytest.raises(RunError, match=r"did not start in 0 s|did not start in 1 s"):
        await fetching
    assert lab.server.requests["DELETE Pod"] == 1
    assert not lab.server.of("Pod")
    fetching = asyncio.create_task(lab.call(FetchCommand, *fetch))
    await soon(lambda: lab.server.of("Pod"))
    lab.server.start_pods()
    with pytest.raises(RunError, match="the run has written nothing yet"):
        await fetching
    lab.server.start_pods()
    assert not lab.server.of("Pod")
    assert not (lab.folder / "out").exists()
    lab.server.drop("PersistentVolumeClaim", FOLDER)
    with pytest.raises(RunError, match="has no volume"):
        await lab.call(FetchCommand, *fetch)


async def test_what_a_learner_removes_meanwhile_is_read_again(lab: Lab) -> None:
    lab.add_run()
    lab.add_pod("learner")
    fill(lab)

    def pruned(time: int) -> None:
        if time == 1:
            lab.write_checkpoint(FOLDER, 300, truncated=True)
        else:
            lab.write_checkpoint(FOLDER, 300)

    lab.before_tar = pruned
    assert await lab.call(FetchCommand, "demo", "--out", str(lab.folder / "out")) == 0
    assert lab.archives == 2
    assert "checkpoints/step-300/online.npz" in names(lab.folder / "out")


async def test_what_is_damaged_on_the_volume_is_left_out_and_named(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.add_run()
    lab.add_pod("learner")
    fill(lab)
    lab.write_checkpoint(FOLDER, 300, truncated=True)
    assert await lab.call(FetchCommand, "demo", "--out", str(lab.folder / "out")) == 0
    assert "checkpoints/step-300 is damaged" in capsys.readouterr().err
    assert names(lab.folder / "out") == FETCHED


async def test_a_connection_that_breaks_leaves_nothing(lab: Lab) -> None:
    lab.add_run()
    lab.add_pod("learner")
    fill(lab)
    lab.cut = 100_000
    with pytest.raises(BrokenArchive, match="broke off"):
        await lab.call(FetchCommand, "demo", "--out", str(lab.folder / "out"))
    assert lab.archives == 3
    assert not list(lab.folder.glob("*out*"))
    lab.cut = None
    assert await lab.call(FetchCommand, "demo", "--out", str(lab.folder / "out")) == 0


async def test_a_folder_is_brought_up_to_date_and_another_is_refused(lab: Lab) -> None:
    lab.add_run()
    lab.add_pod("learner")
    fill(lab)
    out = lab.folder / "out"
    fetch = (FetchCommand, "demo", "--out", str(out))
    await lab.call(*fetch)
    (out / "evaluation-1.json").write_text("{}")
    lab.write_checkpoint(FOLDER, 400)
    (lab.volume / FOLDER / "metrics.jsonl").write_text('{"steps": 2}\n')
    assert await lab.call(*fetch) == 0
    assert "evaluation-1.json" in names(out)
    assert "checkpoints/step-400/online.npz" in names(out)
    assert "2" in (out / "metrics.jsonl").read_text()
    assert RunDirectory.open(out).uid == UID
    (out / ".webgym" / "uid").write_text("another")
    with pytest.raises(OutputError, match="holds another run"):
        await lab.call(*fetch)
    (out / "run.yaml").unlink()
    with pytest.raises(OutputError, match="is not empty"):
        await lab.call(*fetch)


async def test_a_forbidden_exec_says_which_right_is_missing(lab: Lab) -> None:
    lab.add_run()
    lab.add_pod("learner")

    async def refuse(request: web.Request, pod: object) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "message": "no"}, status=403)

    lab.server.subresources["exec"] = refuse
    with pytest.raises(ClusterError, match="you may not create pods/exec in namespace lab"):
        await lab.call(FetchCommand, "demo", "--out", str(lab.folder / "out"))


def test_an_archive_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    for name, kind in (("../out", tarfile.REGTYPE), ("/abs", tarfile.REGTYPE), ("link", tarfile.SYMTYPE)):
        target.mkdir(exist_ok=True)
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
        with pytest.raises(BrokenArchive, match="which no run writes"):
            extract(io.BytesIO(data.getvalue()), target)
        assert not list(target.iterdir())
        assert not (tmp_path / "out").exists()
    with pytest.raises(BrokenArchive, match="broke off"):
        extract(io.BytesIO(b"no archive at all" * 100), target)


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_the_pod_that_reads_is_one_that_servers_take_and_operators_overlook(version: str) -> None:
    run = make_run({"learner": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}})
    pod = reader_pod(run, None, "learner:1")
    assert schema_errors(pod, version) == []
    assert "webgym.io/run" not in pod["metadata"]["labels"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": FOLDER, "readOnly": True}
    assert SETTINGS.learner_image == "learner:1"


def test_the_manifest_for_here_is_valid_and_keeps_what_was_learned() -> None:
    run = make_run({"workers": {"replicas": 9, "memoryPerBrowser": "1Gi"}, "suspend": True, "seed": 5})
    assert run.manifest is not None
    spec = local_manifest(run.manifest).spec
    assert (spec.workers.replicas, str(spec.workers.memory_per_browser), spec.suspend, spec.seed) == (
        1,
        "1Gi",
        False,
        5,
    )
    assert spec.policy == run.spec.policy


# --- logs ------------------------------------------------------------------------------------------------------------


def log_line(message: str, **more: object) -> str:
    return json.dumps({"time": "2026-01-01T10:00:01.500Z", "level": "info", "message": message, **more})


def test_a_line_of_a_log_is_made_readable() -> None:
    line = log_line("hello \x1b[31m", logger="a", worker="w", episode="e1", trace="Trace\n  x")
    assert readable(line) == "10:00:01 INFO    hello \\x1b[31m  [episode=e1]\nTrace\n  x"
    assert readable("plain \x07") == "plain \\x07"
    assert readable('{"a": 1}') == '{"a": 1}'


async def test_logs_name_their_pods(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.add_run()
    with pytest.raises(RunError, match="has no pod now"):
        await lab.call(LogsCommand, "demo")
    lab.add_pod("learner")
    lab.add_pod("worker")
    lab.add_pod("redis")
    lab.logs = {"demo-learner-0-0": [log_line("one"), log_line("two")], "demo-redis-0": ["ready"]}
    assert await lab.call(LogsCommand, "demo", "--tail", "1") == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == ["learner-0: 10:00:01 INFO    two", "redis-0: ready"]
    assert "demo-worker-0-0 has no log: is waiting to start" in said.err
    assert await lab.call(LogsCommand, "demo", "--role", "learner", "--json") == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["pod"], first["message"]) == ("demo-learner-0-0", "one")


async def test_logs_of_the_pods_before(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.add_run()
    lab.add_pod("learner", incarnation=1)
    with pytest.raises(RunError, match="no earlier learner pod any more"):
        await lab.call(LogsCommand, "demo", "--role", "learner", "--previous")
    lab.add_pod("learner", phase="Failed")
    lab.logs["demo-learner-0-0"] = ["why I died"]
    assert await lab.call(LogsCommand, "demo", "--previous") == 0
    assert capsys.readouterr().out == "why I died\n"


async def test_followed_logs_take_in_new_pods_and_end_with_the_run(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.add_run()
    lab.add_pod("learner")
    lab.logs = {"demo-learner-0-0": ["a"], "demo-worker-0-0": ["b"]}
    following = asyncio.create_task(lab.call(LogsCommand, "demo", "-f"))
    await soon(lambda: lab.server.requests["WATCH Pod"])
    lab.add_pod("worker")
    await soon(lambda: lab.server.requests["GET Pod/log"] == 2)
    lab.set_status("demo", Condition("Succeeded", "True", "Completed", ""))
    # The next news of a pod makes it look.
    lab.add_pod("worker", 1)
    assert await following == 0
    assert sorted(capsys.readouterr().out.splitlines()) == ["learner-0: a", "worker-0: b"]
    assert lab.server.objects[KIND, "lab", "demo"]
