"""One run as the operator sees it: identity, validated spec, last written status; and the names of what it makes."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from webgym import __version__
from webgym.manifest import manifest_data
from webgym.spec import API_VERSION, KIND, RunManifest, RunSpec
from webgym.spec.fields import FieldPath, shape_of
from webgym.spec.problems import problems_of
from webgym_operator.schema_check import Definition

__all__ = ["FIELD_IDENTITY", "Object", "Run", "seconds_of", "time_text"]

Object = dict[str, Any]
"""A Kubernetes object as plain data."""

FIELD_IDENTITY = ("seed", "algorithm")
"""What may not change in a run that exists; remembered in its status, since old servers do not enforce it."""


def time_text(seconds: float) -> str:
    """Seconds since the epoch as Kubernetes writes times, in whole seconds."""
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: object) -> float | None:
    """A time as Kubernetes writes it, in seconds since the epoch; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


@dataclass(frozen=True)
class Run:
    """A WebGymRun object."""

    name: str
    namespace: str
    uid: str
    generation: int = 1
    created_at: float = 0.0
    """Seconds since the epoch."""
    deleting: bool = False
    manifest: RunManifest | None = None
    """None where the spec is not valid; :attr:`problem` then says why."""
    problem: str = ""
    outdated: bool = False
    """Whether the spec is not valid only because this program is older than the cluster's definition."""
    status: Mapping[str, Any] = field(default_factory=dict)
    """As last seen, unvalidated."""
    resource_version: str = ""
    client_certificate: bool = False
    """Whether the Secret of ``redis.tls`` holds a certificate for us too; told by whoever can read it."""

    @classmethod
    def parse(cls, body: Mapping[str, Any], definition: Definition | None = None) -> Run:
        """Make sense of an object of the API server; never raises for what a user wrote.

        Args:
            body: the object.
            definition: the cluster's, where it is known.
        """
        metadata = body["metadata"]
        status = body.get("status")
        status = dict(status) if isinstance(status, dict) else {}
        manifest, problem, outdated = _validated(body, definition)
        if manifest is not None:
            problem = _changed_identity(manifest.spec, status)
            manifest = None if problem else manifest
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            generation=metadata.get("generation", 1),
            created_at=seconds_of(metadata.get("creationTimestamp")) or 0.0,
            deleting="deletionTimestamp" in metadata,
            manifest=manifest,
            problem=problem,
            outdated=outdated,
            status=status,
            resource_version=str(metadata.get("resourceVersion", "")),
        )

    @property
    def spec(self) -> RunSpec:
        """The valid spec.

        Raises:
            ValueError: there is none.
        """
        if self.manifest is None:
            raise ValueError(f"run {self.namespace}/{self.name} has no valid spec")
        return self.manifest.spec

    @property
    def data(self) -> Object:
        """The valid manifest as plain data, every default filled in."""
        if self.manifest is None:
            raise ValueError(f"run {self.namespace}/{self.name} has no valid spec")
        return manifest_data(self.manifest)

    # --- names -----------------------------------------------------------------------------------------------------

    @property
    def short_uid(self) -> str:
        """Tells runs of one name apart where something outlives a run."""
        return self.uid.replace("-", "")[:8]

    @property
    def redis_name(self) -> str:
        """Of the StatefulSet, Service, Secret, volume and NetworkPolicy of the run's Redis."""
        return f"{self.name}-redis"

    @property
    def worker_name(self) -> str:
        """Of what belongs to all workers."""
        return f"{self.name}-worker"

    @property
    def learner_name(self) -> str:
        """Of what belongs to all learners; also their domain in the cluster's DNS."""
        return f"{self.name}-learner"

    @property
    def claim_name(self) -> str:
        """Of the volume that holds checkpoints."""
        storage = self.spec.storage
        return storage.existing_claim or f"{self.name}-{self.short_uid}"

    @property
    def folder_name(self) -> str:
        """Of the run's folder in that volume, which runs may share."""
        return f"{self.name}-{self.short_uid}"

    def pod_name(self, role: str, slot: int, incarnation: int) -> str:
        """Deterministic, so that whoever creates the same pod twice is told that it exists."""
        return f"{self.name}-{role}-{slot}-{incarnation}"

    def labels(self, role: str) -> dict[str, str]:
        """Of every object made for a role: redis, worker or learner."""
        return {
            "app.kubernetes.io/name": "webgym",
            "app.kubernetes.io/component": role,
            "app.kubernetes.io/managed-by": "webgym-operator",
            "webgym.io/run": self.name,
            "webgym.io/role": role,
        }

    def selector(self, role: str) -> dict[str, str]:
        """Finds the pods of a role of this run, and no other run's."""
        return {"webgym.io/run": self.name, "webgym.io/role": role}

    def owner(self) -> Object:
        """The owner reference that makes the cluster remove an object with the run."""
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            # False: a foreground deletion of the run need not wait for pods that cannot die.
            "blockOwnerDeletion": False,
        }


def _validated(
    body: Mapping[str, Any], definition: Definition | None
) -> tuple[RunManifest | None, str, bool]:
    data = {key: body[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in body}
    if definition is not None and "spec" in data:
        data["spec"] = definition.without_defaults(data["spec"])
    try:
        return RunManifest.model_validate(data, by_alias=True, by_name=False), "", False
    except ValidationError as error:
        problems = problems_of(error)
    newer = [path for path, _ in problems if _is_newer(path, definition)]
    if len(newer) == len(problems):
        fields = _first([".".join(map(str, path)) for path in newer], ", ")
        lacks = "is older than the cluster's CustomResourceDefinition, and does not know what that allows in"
        return None, f"webgym {__version__} {lacks} {fields}; upgrade it", True
    return None, _first([f"{'.'.join(map(str, path))}: {message}" for path, message in problems], "; "), False


def _is_newer(path: FieldPath, definition: Definition | None) -> bool:
    """Whether what is wrong with a field is that the cluster's definition knows more of it than we do."""
    if definition is not None and definition.differs(path):
        return True
    # Also where the definition may not be read or has changed since: a server keeps no field that it does not know,
    # but for those in the task, which has no type there.
    return path[0] == "spec" and path[:2] != ("spec", "task") and shape_of(path) is None


def _first(texts: Sequence[str], separator: str) -> str:
    rest = f"{separator}and {len(texts) - 5} more" if len(texts) > 5 else ""
    return separator.join(texts[:5]) + rest


def _changed_identity(spec: RunSpec, status: Mapping[str, Any]) -> str:
    for name, now in zip(FIELD_IDENTITY, (spec.seed, spec.learner.algorithm), strict=True):
        before = status.get(name)
        if before is not None and before != now:
            return f"the {name} of a run cannot be changed ({before} to {now}); create another run"
    return ""
