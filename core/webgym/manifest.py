"""Manifests: reading a WebGymRun from a file, with errors a person can act on, and writing it out resolved.

Every problem names the file and line (or the ``--set`` option), the full path of the field, and the mend.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from webgym.errors import ManifestError, WebGymError
from webgym.spec import API_VERSION, KIND, RunManifest, TaskSpec, redact_urls
from webgym.spec.fields import FieldPath
from webgym.spec.overrides import apply_override
from webgym.spec.problems import InvalidManifest, Problem, describe, problems_of
from webgym.spec.source import MOST_BYTES, Source, parse
from webgym.spec.yaml_text import dump_yaml

__all__ = [
    "InvalidManifest",
    "Problem",
    "TaskCheck",
    "dump_manifest",
    "load_manifest",
    "manifest_data",
    "parse_manifest",
]

TaskCheck = Callable[[TaskSpec], None]
"""Raises a :class:`~webgym.errors.WebGymError` for a task that does not exist or does not take its params.
Which tasks there are is known to the workers' package, which this one cannot import."""


def load_manifest(
    path: str | Path, overrides: Sequence[str] = (), *, task_check: TaskCheck | None = None
) -> RunManifest:
    """Read, override and validate a manifest.

    Args:
        path: of the file; ``-`` reads standard input.
        overrides: ``path=value`` options, applied in order; the value is parsed as YAML, an empty one unsets.
        task_check: called for each task whose name and parameters are well-formed.

    Raises:
        ManifestError: the file cannot be read.
        InvalidManifest: what it holds is wrong; `problems` lists everything found.
    """
    name = "standard input" if str(path) == "-" else str(path) or "''"
    return parse_manifest(_read(path, name), overrides, name=name, task_check=task_check)


def parse_manifest(
    text: str, overrides: Sequence[str] = (), *, name: str = "manifest", task_check: TaskCheck | None = None
) -> RunManifest:
    """Like :func:`load_manifest`, for a text; `name` stands for the file in messages.

    Raises:
        InvalidManifest: the text is wrong; `problems` lists everything found.
    """
    source = parse(text, name)
    wrong = list(source.problems)
    for option in overrides:
        try:
            apply_override(source, option)
        except InvalidManifest as error:
            wrong += error.problems
    _check_kind(source)
    try:
        # By alias only: batch_size would pass here and be refused by kubectl.
        manifest = RunManifest.model_validate(source.data, by_alias=True, by_name=False)
    except ValidationError as error:
        reported = {problem.path for problem in wrong}
        wrong += [p for p in _invalid(source, problems_of(error)).problems if p.path not in reported]
    if task_check is not None:
        reported = {problem.path for problem in wrong}
        wrong += [p for p in _task_problems(source, task_check) if p.path not in reported]
    if wrong:
        raise InvalidManifest(wrong)
    return manifest


def dump_manifest(manifest: RunManifest) -> str:
    """The manifest as YAML with every default written out, which :func:`load_manifest` reads back to an
    equal one.

    Secrets are held by reference, so there is none to leave out; a password in a URL inside an annotation,
    the one place where it is not refused, is written as ``***``.
    """
    return dump_yaml(_redacted(manifest_data(manifest)))


def manifest_data(manifest: RunManifest) -> dict[str, Any]:
    """The manifest as plain data with every default filled in, and without the fields that have no value."""
    data = manifest.model_dump(mode="json", by_alias=True, exclude_none=True)
    # What is absent elsewhere is a value inside the parameters of a task.
    tasks = data["spec"]["task"]
    for written, task in zip(tasks if isinstance(tasks, list) else [tasks], manifest.spec.tasks, strict=True):
        written["params"] = dict(task.params)
    return data


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _redacted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_redacted(inner) for inner in value]
    return redact_urls(value) if isinstance(value, str) else value


def _read(path: str | Path, name: str) -> str:
    try:
        if str(path) == "-":
            raw = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with open(path, "rb") as file:
                raw = file.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise ManifestError(f"{name}: there is no such file") from error
    except IsADirectoryError as error:
        raise ManifestError(f"{name}: is a folder; give the manifest file inside it") from error
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise ManifestError(f"{name}: cannot be read: {reason}") from error
    if len(raw) > MOST_BYTES:
        raise ManifestError(f"{name}: is larger than {MOST_BYTES // 1024} KiB; this is no manifest")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ManifestError(f"{name}:{line}: is not UTF-8 text; save it as UTF-8") from error


def _check_kind(source: Source) -> None:
    """Refuse another kind of document before everything else: all its keys would be wrong."""
    data = source.data
    if not isinstance(data, dict):
        message = f"expected a map with apiVersion, kind, metadata and spec, not {describe(data)}"
        raise InvalidManifest([source.problem((), message)])
    wrong: list[tuple[FieldPath, str]] = []
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if data.get(key) is None:
            wrong.append(((key,), f"is missing; write {key}: {wanted}"))
        elif data[key] != wanted:
            wrong.append(((key,), f"expected {wanted}, not {describe(data[key])}"))
    if wrong:
        raise _invalid(source, wrong)


def _task_problems(source: Source, task_check: TaskCheck) -> list[Problem]:
    """What the check says of each task whose name and parameters are well-formed, whatever else is wrong."""
    spec = source.data.get("spec")
    written = spec.get("task") if isinstance(spec, dict) else None
    path: FieldPath = ("spec", "task")
    entries = (
        [((*path, i), one) for i, one in enumerate(written)]
        if isinstance(written, list)
        else [(path, written)]
    )
    found: list[Problem] = []
    for at, entry in entries:
        if not isinstance(entry, dict):
            continue
        named = {key: entry[key] for key in ("name", "params") if key in entry}
        try:
            task_check(TaskSpec.model_validate(named, by_alias=True, by_name=False))
        except ValidationError:
            continue
        except WebGymError as error:
            found.append(source.problem((*at, "name"), str(error)))
    return found


def _invalid(source: Source, found: Sequence[tuple[FieldPath, str]]) -> InvalidManifest:
    return InvalidManifest([source.problem(path, message) for path, message in found])
