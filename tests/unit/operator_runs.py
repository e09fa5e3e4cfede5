"""Runs for the tests of the operator, and the schemas of Kubernetes to hold its objects against."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate.utils as schemas
import referencing

from webgym.spec.source import parse
from webgym_operator.run import Object, Run
from webgym_operator.settings import Settings

ROOT = Path(__file__).parents[2]
UID = "0b6a3ad8-6f0c-4c39-9f1c-1d3a5ce8a001"
VERSIONS = [f"1.{minor}" for minor in range(28, 38)]
SETTINGS = Settings("worker:1", "learner:1", "redis:1", namespace="webgym-system")


def run_body(spec: dict[str, Any] | None = None, *, name: str = "demo", **more: Any) -> Object:
    metadata = {
        "name": name,
        "namespace": "lab",
        "uid": UID,
        "generation": 1,
        "resourceVersion": "10",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {
        "apiVersion": "webgym.io/v1alpha1",
        "kind": "WebGymRun",
        "metadata": metadata | more.pop("metadata", {}),
        "spec": {"task": {"name": "miniwob.click-button"}, **(spec or {})},
        **more,
    }


def make_run(spec: dict[str, Any] | None = None, **more: Any) -> Run:
    run = Run.parse(run_body(spec, **more))
    assert not run.problem, run.problem
    return run


def example(name: str) -> Run:
    data = parse((ROOT / "examples" / name).read_text(), name).data
    return make_run(data["spec"], name=data["metadata"]["name"])


@functools.cache
def _validator(kind: str, api_version: str, version: str) -> jsonschema.Draft202012Validator:
    group, _, short = api_version.rpartition("/")
    file = f"{kind.lower()}-{group.split('.')[0] + '-' if group else ''}{short}.json"
    folder = f"kubernetes-json-schema/v{_full(version)}-local-strict"
    schema = schemas.schema_contents(f"{folder}/{file}", version)
    registry = referencing.Registry().with_resources([_definitions(folder, version)])
    return jsonschema.Draft202012Validator(
        schema, registry=referencing.Resource.from_contents(schema) @ registry
    )


@functools.cache
def _definitions(folder: str, version: str) -> Any:
    resource = referencing.Resource.from_contents(
        schemas.schema_contents(f"{folder}/_definitions.json", version)
    )
    return resource.id(), resource


@functools.cache
def _full(version: str) -> str:
    return next(full for full in schemas.all_versions() if schemas.major_minor(full) == version)


def schema_errors(made: Object, version: str) -> list[str]:
    """What a server of that version would refuse in an object, unknown fields included."""
    validator = _validator(made["kind"], made["apiVersion"], version)
    where = f"{made['kind']} {made['metadata']['name']} on {version}"
    return [f"{where}: {'.'.join(map(str, e.path))}: {e.message}"[:300] for e in validator.iter_errors(made)]
