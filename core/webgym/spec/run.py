"""The whole run: the WebGymRun object as it is written in a manifest and kept by Kubernetes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from webgym.spec.base import INT32_MAX, LabelName, Labels, Rule, SpecModel, Whole
from webgym.spec.browser import Browser
from webgym.spec.budget import Evaluation, Stop
from webgym.spec.learner import Learner
from webgym.spec.policy import Observation, Policy
from webgym.spec.redis import Redis
from webgym.spec.storage import Storage
from webgym.spec.task import TaskSpec
from webgym.spec.workers import Workers

__all__ = ["API_VERSION", "KIND", "MOST_TASKS", "Metadata", "RunManifest", "RunSpec"]

API_VERSION = "webgym.io/v1alpha1"
KIND = "WebGymRun"
MOST_TASKS = 256

_SERVER_SET = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
"""What an API server adds to metadata; dropped, so that `kubectl get wgr NAME -o yaml` gives a manifest
again."""


def _one_or_list(value: object) -> str:
    return "list" if isinstance(value, list) else "one"


class RunSpec(SpecModel):
    """What to train, on what, and until when."""

    task: Annotated[
        Annotated[TaskSpec, Tag("one")]
        | Annotated[list[TaskSpec], Field(min_length=1, max_length=MOST_TASKS), Tag("list")],
        Discriminator(_one_or_list),
    ]
    """The task to practise, or a list of tasks with weights."""
    seed: Annotated[int, Field(ge=0, le=INT32_MAX), Whole] = 0
    """Gives page seeds, initial weights and exploration. Cannot be changed in a run that exists. In mode
    Asynchronous the order of events is not repeatable even with the same seed."""
    mode: Literal["Asynchronous", "Lockstep", "Synchronous"] = "Asynchronous"
    """Asynchronous: browsers and learner wait for each other as little as possible. Lockstep: all browsers
    of one worker step together, at the pace of the slowest. Synchronous: one browser, acting and learning
    in turn; repeatable, and slow. The last two exist to compare with."""
    observation: Observation = Field(default_factory=Observation)
    """What the agent sees."""
    policy: Policy = Field(default_factory=Policy)
    """The network and how browsers use it."""
    learner: Learner = Field(default_factory=Learner)
    """How parameters are learned."""
    workers: Workers = Field(default_factory=Workers)
    """How many browsers there are and where they run."""
    browser: Browser = Field(default_factory=Browser)
    """The browsers themselves, and what their pages may reach."""
    redis: Redis = Field(default_factory=Redis)
    """Where tasks, parameters and experience are exchanged."""
    storage: Storage = Field(default_factory=Storage)
    """Where checkpoints and reports live on a cluster."""
    stop: Stop = Field(default_factory=lambda: Stop(seconds=600))
    """When training ends. Left out: after 600 seconds."""
    evaluation: Evaluation = Field(default_factory=Evaluation)
    """How the trained agent is judged."""
    suspend: bool = False
    """True: checkpoint, release all pods and wait; false again: resume."""
    active_deadline_seconds: Annotated[int, Field(ge=1, le=31_536_000), Whole] | None = None
    """Longest life of the run, in seconds, evaluation included and suspension not; beyond it the run has
    failed."""
    backoff_limit: Annotated[int, Field(ge=0, le=1000), Whole] = 6
    """How often programs that failed are started again before the run has failed. Lost nodes do not count."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=INT32_MAX), Whole] | None = None
    """Seconds after which a finished run deletes itself. Left out: never."""
    managed_by: (
        Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$")] | None
    ) = None
    """Name, as domain/name, of another controller that starts this run; WebGym's operator then leaves it
    alone."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            message="mode Lockstep and Synchronous need a single worker: set workers.replicas to 1",
            cel="self.mode == 'Asynchronous' || self.workers.replicas <= 1",
            check=lambda self: self.mode == "Asynchronous" or self.workers.replicas <= 1,
            field="workers.replicas",
        ),
        Rule(
            message="mode Lockstep and Synchronous cannot autoscale: set workers.autoscaling.mode to Manual",
            cel="self.mode == 'Asynchronous' || self.workers.autoscaling.mode == 'Manual'",
            check=lambda self: self.mode == "Asynchronous" or self.workers.autoscaling.mode == "Manual",
            field="workers.autoscaling.mode",
        ),
        Rule(
            message="mode Synchronous is one browser: leave workers.maxBrowsers out or set it to 1",
            cel=(
                "self.mode != 'Synchronous' || !has(self.workers.maxBrowsers) || "
                "self.workers.maxBrowsers == 1"
            ),
            check=lambda self: self.mode != "Synchronous" or self.workers.max_browsers in (None, 1),
            field="workers.max_browsers",
        ),
        Rule(
            message="mode Lockstep and Synchronous are one learner: set learner.replicas to 1",
            cel="self.mode == 'Asynchronous' || self.learner.replicas == 1",
            check=lambda self: self.mode == "Asynchronous" or self.learner.replicas == 1,
            field="learner.replicas",
        ),
        Rule(
            message="stop.success is measured on validation episodes: set evaluation.validationShare above 0",
            cel="!has(self.stop.success) || self.evaluation.validationShare > 0.0",
            check=lambda self: self.stop.success is None or self.evaluation.validation_share > 0,
            field="evaluation.validation_share",
        ),
        Rule(
            message="activeDeadlineSeconds fails the run before stop.seconds, which has a default, ends it: raise it",
            cel=(
                "!has(self.activeDeadlineSeconds) || !has(self.stop.seconds) || "
                "self.stop.seconds <= self.activeDeadlineSeconds"
            ),
            check=lambda self: (
                self.active_deadline_seconds is None
                or self.stop.seconds is None
                or self.stop.seconds <= self.active_deadline_seconds
            ),
            field="active_deadline_seconds",
        ),
        Rule(
            message="each task may be listed once with the same params; add their weights up",
            cel=None,  # the server's schema leaves the type of task open, and CEL needs one
            check=lambda self: all(
                first.name != second.name or first.params != second.params
                for i, first in enumerate(self.tasks)
                for second in self.tasks[:i]
            ),
            field="task",
        ),
        Rule(
            message="the seed of a run cannot be changed; create another run",
            cel="self == oldSelf",
            check=None,
            field="seed",
            on_field=True,
        ),
    )

    @property
    def tasks(self) -> list[TaskSpec]:
        """The tasks as a list, whichever way they were written."""
        return self.task if isinstance(self.task, list) else [self.task]


class Metadata(SpecModel):
    """Name and labels of the run."""

    name: Annotated[str, Field(min_length=1, max_length=50, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name of the run: lower case letters, digits and hyphens, at most 50, so that names of pods can be
    made of it."""
    namespace: (
        Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] | None
    ) = None
    """Kubernetes namespace. Left out: that of the caller."""
    labels: Labels = Field(default_factory=dict)
    """Labels to find the run by."""
    annotations: Annotated[
        dict[LabelName, Annotated[str, Field(max_length=262_144)]], Field(max_length=256)
    ] = Field(default_factory=dict)
    """Notes for tools and people."""

    @model_validator(mode="before")
    @classmethod
    def _drop_server_set(cls, data: object) -> object:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if key not in _SERVER_SET}
        return data


class RunManifest(SpecModel):
    """A WebGymRun as written in a file."""

    api_version: Literal["webgym.io/v1alpha1"] = "webgym.io/v1alpha1"
    """Version of this format."""
    kind: Literal["WebGymRun"] = "WebGymRun"
    """Kind of this object."""
    metadata: Metadata
    """Name and labels of the run."""
    spec: RunSpec
    """What to train, on what, and until when."""

    @model_validator(mode="before")
    @classmethod
    def _drop_status(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if key != "status"}
        return data
