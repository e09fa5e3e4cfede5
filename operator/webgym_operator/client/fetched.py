"""What was fetched of a run: whether its checkpoints are whole, how it becomes a run's folder, and where it goes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from webgym.errors import OutputError
from webgym.manifest import dump_manifest
from webgym.run.summary import compose_summary
from webgym.rundir import RunDirectory, write_atomic, write_json
from webgym.spec import Redis, RunManifest, Storage
from webgym.spec.pods import Resources
from webgym_operator.client.describe import verdict
from webgym_operator.run import Object, seconds_of
from webgym_operator.verdict import recorded_verdict, told_reason

__all__ = [
    "check_target",
    "damaged_checkpoints",
    "install",
    "local_manifest",
    "summary_facts",
    "write_identity",
    "write_summary",
]

_CHECKPOINT = re.compile(r"step-\d{1,18}")
_BEST = "best.json"
OBJECT = "webgymrun.json"
"""The run as the cluster had it, status and all."""


def damaged_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints in a run's folder that are not as their manifests say, by size and checksum."""
    return [
        path
        for path in sorted((folder / "checkpoints").glob("step-*"))
        if _CHECKPOINT.fullmatch(path.name) and not _is_whole(path)
    ]


def _is_whole(path: Path) -> bool:
    try:
        files: dict[str, Any] = json.loads((path / "manifest.json").read_bytes())["files"]
        return all(_digest(path / name, entry["bytes"]) == entry["sha256"] for name, entry in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _digest(path: Path, size: int) -> str:
    if path.stat().st_size != size:
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def local_manifest(manifest: RunManifest) -> RunManifest:
    """The manifest with which this machine judges what a cluster has trained.

    What the agent sees, does and learned stays; where it ran goes: the cluster's Redis, its pods and volume, how many
    workers there were.
    """
    spec = manifest.spec
    no_pods: dict[str, Any] = {
        "image": None,
        "env": [],
        "resources": Resources(),
        "node_selector": {},
        "tolerations": [],
    }
    workers = type(spec.workers)(
        browsers_per_core=spec.workers.browsers_per_core, memory_per_browser=spec.workers.memory_per_browser
    )
    learner = spec.learner.model_copy(
        update={**no_pods, "replicas": 1, "device": "auto", "precision": "auto"}
    )
    changed = spec.model_copy(
        update={
            "mode": "Asynchronous",
            "workers": workers,
            "learner": learner,
            "redis": Redis(),
            "storage": Storage(),
            "suspend": False,
            "active_deadline_seconds": None,
            "ttl_seconds_after_finished": None,
            "managed_by": None,
        }
    )
    return manifest.model_copy(update={"spec": changed})


def write_identity(folder: Path, run: Object, manifest: RunManifest, damaged: list[Path]) -> None:
    """Make what was fetched a run's folder: its manifest, its uid, and the run as the cluster had it.

    Args:
        folder: of the run.
        run: as the server has it.
        manifest: of the run.
        damaged: checkpoints that are left out.
    """
    for path in damaged:
        shutil.rmtree(path)
    metadata = {k: v for k, v in run["metadata"].items() if k != "managedFields"}
    write_json(folder / OBJECT, {**run, "metadata": metadata})
    write_atomic(folder / "run.yaml", dump_manifest(local_manifest(manifest)))
    write_atomic(folder / ".webgym" / "uid", str(run["metadata"]["uid"]) + "\n")
    (folder / "logs").mkdir(exist_ok=True)


def summary_facts(run: Object, manifest: RunManifest) -> dict[str, Any]:
    """What the summary of a run that ``webgym run`` made has from its supervisor, here from the run's status.

    Args:
        run: as the server has it.
        manifest: of the run.
    """
    status = run.get("status") or {}
    over, code = recorded_verdict(status), verdict(run)
    times = [seconds_of(status.get(name)) for name in ("startTime", "completionTime")]
    return {
        "name": manifest.metadata.name,
        "tasks": [task.name for task in manifest.spec.tasks],
        "stop_reason": None if over is None else told_reason(over),
        "exit_code": None if code is None else int(code),
        "message": None if over is None or over.succeeded else over.message,
        "seconds": None if times[0] is None or times[1] is None else times[1] - times[0],
        "restarts": dict(status.get("failures") or {}),
        # Where it is fetched to is not where it was trained.
        "machine": {"system": "Kubernetes"},
    }


def write_summary(folder: Path, facts: dict[str, Any]) -> None:
    """Write ``summary.json`` of a fetched run.

    Raises:
        OutputError: the folder cannot be written.
    """
    directory = RunDirectory.open(folder, "fetch")
    try:
        write_json(directory.summary, compose_summary(directory, facts))
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror or error}") from error


def check_target(target: Path, uid: str) -> None:
    """Whether the run may be fetched there: into a new or empty folder, or one that holds an earlier state of it.

    Raises:
        OutputError: another run is there, or something else.
    """
    if (target / "run.yaml").is_file():
        there = RunDirectory.open(target, "fetch").uid
        if there != uid:
            raise OutputError(
                f"{target} holds another run ({there or 'of unknown identity'}): name another by --out"
            )
    else:
        RunDirectory.check_new(target)


def install(source: Path, target: Path) -> None:
    """Move a fetched folder to where it is wanted.

    A new folder appears whole. In one that holds an earlier state of the run each file and each checkpoint is replaced
    whole, and what is only there (evaluations made here, older checkpoints) stays.

    Raises:
        OutputError: somebody is using the folder, or it cannot be written.
    """
    try:
        if not (target / "run.yaml").is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():
                target.rmdir()  # it is empty, which was checked
            os.rename(source, target)
            return
        with RunDirectory.resume(target, "fetch"):
            _merge(source, target)
        shutil.rmtree(source, ignore_errors=True)
    except OSError as error:
        raise OutputError(
            f"{target} cannot be written: {error.strerror or error}; name another by --out"
        ) from error


def _merge(source: Path, target: Path) -> None:
    # The note of the best checkpoint comes after the checkpoints, so that it never names one that is not there.
    for path in sorted(source.iterdir(), key=lambda p: (p.name == _BEST, p.name)):
        there = target / path.name
        if path.name == ".webgym":
            continue
        if path.is_dir() and _CHECKPOINT.fullmatch(path.name):
            aside = there.with_name(f".old-{path.name}")
            if there.exists():
                os.rename(there, aside)
            os.rename(path, there)
            shutil.rmtree(aside, ignore_errors=True)
        elif path.is_dir():
            there.mkdir(exist_ok=True)
            _merge(path, there)
        else:
            os.replace(path, there)
