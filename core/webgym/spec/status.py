"""The status of a run: what the operator writes, and what ``kubectl get wgr`` shows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from webgym.spec.base import INT32_MAX, INT64_MAX, SpecModel, Whole

__all__ = ["Condition", "RunStatus"]

_Count = Annotated[int, Field(ge=0, le=INT64_MAX), Whole]
_Time = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]


class Condition(SpecModel):
    """One aspect of the run's state, in the form that `kubectl wait --for=condition=...` understands."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """Which aspect: Succeeded sums the run up; others are Ready, Progressing, Suspended and BrowserSandbox."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[str, Field(max_length=1024)]
    """Why, in one CamelCase word for programs."""
    message: Annotated[str, Field(max_length=32_768)]
    """Why, in words for people, and how to mend it."""
    last_transition_time: _Time
    """When `status` changed last."""
    observed_generation: _Count | None = None
    """Generation of the spec that this was judged from."""


class RunStatus(SpecModel):
    """What is known about the run. Written by the operator, a few times a minute."""

    observed_generation: _Count | None = None
    """Generation of the spec that the operator acted on last."""
    conditions: Annotated[list[Condition], Field(max_length=32)] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    """The run's state, one entry for each aspect."""
    replicas: Annotated[int, Field(ge=0, le=INT32_MAX), Whole] | None = None
    """Worker pods that exist."""
    ready_replicas: Annotated[int, Field(ge=0, le=INT32_MAX), Whole] | None = None
    """Worker pods whose browsers act."""
    selector: Annotated[str, Field(max_length=1024)] | None = None
    """Label selector of the worker pods, for autoscalers."""
    start_time: _Time | None = None
    """When the operator first saw the run."""
    completion_time: _Time | None = None
    """When the run ended, well or badly."""
    desired_replicas: Annotated[int, Field(ge=0, le=INT32_MAX), Whole] | None = None
    """Worker pods that there should be: `workers.replicas`, or what autoscaling decided last."""
    last_scale_time: _Time | None = None
    """When autoscaling last changed its mind."""
    active_seconds: _Count | None = None
    """Seconds that the run was active before its latest suspension; `activeDeadlineSeconds` counts them."""
    seed: _Count | None = None
    """The seed that the run began with."""
    algorithm: Annotated[str, Field(max_length=64)] | None = None
    """The algorithm that the run began with."""
    restarts: Annotated[int, Field(ge=0, le=INT32_MAX), Whole] | None = None
    """Failures counted against `backoffLimit`."""
    failures: Annotated[dict[str, _Count], Field(max_length=8)] = Field(default_factory=dict)
    """The same by their class: site, browser, agent or infrastructure."""
    last_failure: Annotated[str, Field(max_length=8192)] | None = None
    """What failed last, and why."""
    counted_pods: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=20_000)] = Field(
        default_factory=list
    )
    """Identities of ended pods that are in these numbers already and still there."""
    steps: _Count | None = None
    """Environment steps taken."""
    steps_per_second: float | None = None
    """Environment steps per second, of late."""
    episodes: _Count | None = None
    """Episodes finished and counted."""
    updates: _Count | None = None
    """Gradient updates made."""
    success: float | None = None
    """Success rate from 0 to 1: of the final evaluation once there is one, before that of recent validation."""
    staleness: float | None = None
    """Mean age of arriving transitions, in versions of the parameters."""
    queued: _Count | None = None
    """Episodes waiting for a browser."""
    time_left_seconds: _Count | None = None
    """Seconds until the training budget ends, at the present pace."""
    checkpoint: Annotated[str, Field(max_length=1024)] | None = None
    """The latest checkpoint, as a path inside the run's storage."""
