"""What `workers` and `learner` share: the image, environment, resources and placement of their pods."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from webgym.spec.base import INT32_MAX, LabelName, Labels, LabelValue, Rule, SpecModel, Whole
from webgym.spec.quantity import Quantity
from webgym.spec.secrets import PlainText

IMAGE = (
    r"^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@[A-Za-z0-9+._-]+:[0-9a-fA-F]{32,128})?$"
)

__all__ = ["IMAGE", "EnvSource", "EnvVar", "KeyRef", "PodSettings", "Resources", "Toleration"]

_SECRET_NAME = r"(^|.*_)(PASSWORD|PASSWD|SECRET|TOKEN|APIKEY|API_KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?)$"


class KeyRef(SpecModel):
    """A key of a Secret or of a ConfigMap in the run's namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
    """Name of the Secret or ConfigMap."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key inside it whose value the variable gets."""
    optional: bool = False
    """Whether the program starts without the variable when the key is not there, instead of not at all."""


class EnvSource(SpecModel):
    """Where the value of an environment variable comes from on a cluster."""

    secret_key_ref: KeyRef | None = None
    """Key of a Secret."""
    config_map_key_ref: KeyRef | None = None
    """Key of a ConfigMap."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            message="give exactly one of secretKeyRef and configMapKeyRef",
            cel="has(self.secretKeyRef) != has(self.configMapKeyRef)",
            check=lambda self: (self.secret_key_ref is None) != (self.config_map_key_ref is None),
        ),
    )


class EnvVar(SpecModel):
    """An environment variable of a program."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Name of the variable; those that start with WEBGYM_ are the product's own and are refused."""
    value: PlainText | None = None
    """Its value, in the clear: a variable named like a secret (HF_TOKEN, DB_PASSWORD) has to use
    `valueFrom`."""
    value_from: EnvSource | None = None
    """Where the value comes from on a cluster. `webgym run` passes on what the calling shell exports
    instead."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            message="give exactly one of value and valueFrom",
            cel="has(self.value) != has(self.valueFrom)",
            check=lambda self: (self.value is None) != (self.value_from is None),
        ),
        Rule(
            message="names that start with WEBGYM_ are set by WebGym itself; choose another",
            cel="!self.name.startsWith('WEBGYM_')",
            check=lambda self: not self.name.startswith("WEBGYM_"),
            field="name",
        ),
        Rule(
            message="looks like a secret, and manifests are written out: give it by valueFrom.secretKeyRef",
            cel=f"!has(self.value) || !self.name.matches('{_SECRET_NAME}')",
            check=lambda self: self.value is None or re.search(_SECRET_NAME, self.name) is None,
            field="value",
        ),
    )


ResourceMap = Annotated[
    dict[
        Annotated[str, Field(pattern=r"^[a-z0-9A-Z]([-a-z0-9A-Z_./]*[a-z0-9A-Z])?$", max_length=253)],
        Quantity,
    ],
    Field(max_length=16),
]


class Resources(SpecModel):
    """Compute resources of one pod, as in a Kubernetes container."""

    requests: ResourceMap = Field(default_factory=dict)
    """What the scheduler sets aside, by resource name: `cpu: "4"`, `memory: 8Gi`, `nvidia.com/gpu: 1`."""
    limits: ResourceMap = Field(default_factory=dict)
    """What the pod may not exceed. Memory above its limit kills the pod (exit code 137)."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            message="a request may not exceed the limit of the same resource",
            cel=None,  # comparing quantities needs a CEL library that servers older than 1.29 lack
            check=lambda self: all(
                amount <= self.limits[name] for name, amount in self.requests.items() if name in self.limits
            ),
            field="requests",
        ),
    )


class Toleration(SpecModel):
    """Lets pods onto nodes that carry a matching taint, as in a Kubernetes pod."""

    key: LabelName | None = None
    """Key of the taint; left out, together with `operator: Exists`, it matches every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Equal compares `value`, Exists does not."""
    value: LabelValue | None = None
    """Value of the taint, for Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; left out, it matches all effects."""
    toleration_seconds: Annotated[int, Field(ge=0, le=INT32_MAX), Whole] | None = None
    """Seconds that a pod stays on a node once a NoExecute taint appears; left out, for ever."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            message="with operator Exists there is no value to compare; leave value out",
            cel="self.operator != 'Exists' || !has(self.value)",
            check=lambda self: self.operator != "Exists" or self.value is None,
            field="value",
        ),
        Rule(
            message="without a key it takes operator: Exists",
            cel="has(self.key) || self.operator == 'Exists'",
            check=lambda self: self.key is not None or self.operator == "Exists",
            field="operator",
        ),
        Rule(
            message="tolerationSeconds needs effect: NoExecute",
            cel="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            check=lambda self: self.toleration_seconds is None or self.effect == "NoExecute",
            field="toleration_seconds",
        ),
    )


class PodSettings(SpecModel):
    """The pod around a program. `webgym run` uses `env` alone, having no pods."""

    image: Annotated[str, Field(min_length=1, max_length=1024, pattern=IMAGE)] | None = None
    """Container image, with tag or digest. Left out: the one that the operator was installed with."""
    env: Annotated[list[EnvVar], Field(max_length=64)] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Environment variables of the program, each name once."""
    resources: Resources = Field(default_factory=Resources)
    """Requests and limits of each pod. Left out: the operator derives them from browsers, memory and GPUs."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels that a node must carry to be given these pods."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = Field(default_factory=list)
    """Taints that these pods accept, for instance that of spot nodes."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            message="each variable may be named once",
            cel=None,  # list-type map says it on a server
            check=lambda self: len({variable.name for variable in self.env}) == len(self.env),
            field="env",
        ),
    )
