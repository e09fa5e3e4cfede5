"""One episode as a task, and how it went."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast, get_args

from webgym.errors import ProtocolError
from webgym.protocol import webgym_pb2 as pb
from webgym.protocol.envelope import checked_name, checked_text, open_envelope, seal

__all__ = ["OUTCOMES", "PURPOSES", "EpisodeSummary", "EpisodeTask", "Outcome", "Purpose"]

Purpose = Literal["train", "validate", "evaluate", "collect"]
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
"""What an episode is for; evaluation seeds are never trained on."""

Outcome = Literal["terminated", "truncated", "fault"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""How an episode ended: the task's own end, the step limit, or a crash."""

_PURPOSES: dict[Purpose, pb.Purpose] = {
    "train": pb.PURPOSE_TRAIN,
    "validate": pb.PURPOSE_VALIDATE,
    "evaluate": pb.PURPOSE_EVALUATE,
    "collect": pb.PURPOSE_COLLECT,
}
_PURPOSE_NAMES: dict[int, Purpose] = {v: k for k, v in _PURPOSES.items()}
_OUTCOMES: dict[Outcome, pb.Outcome] = {
    "terminated": pb.OUTCOME_TERMINATED,
    "truncated": pb.OUTCOME_TRUNCATED,
    "fault": pb.OUTCOME_FAULT,
}
_OUTCOME_NAMES: dict[int, Outcome] = {v: k for k, v in _OUTCOMES.items()}

T = TypeVar("T")

_INT64 = range(-(2**63), 2**63)
_UINT32 = range(2**32)


@dataclass(frozen=True)
class EpisodeTask:
    """One episode that a worker is to act."""

    episode: str
    """Unique within the run, such as ``train-000042``."""
    task: str
    """Name of the task, such as ``miniwob.click-button``."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The task's own parameters; anything JSON can say."""
    seed: int = 0
    purpose: Purpose = "train"
    priority: float = 0.0
    """Higher is leased first."""
    max_steps: int | None = None
    """Step limit; None for the task's own."""
    version: int = 0
    """Parameter version to act with, greedily; 0 for the newest, exploring."""
    record: bool = False
    """Whether to keep screenshots."""
    attempt: int = 0
    """Which try this is, from 1; set by the lease."""

    def encode(self) -> bytes:
        """Bytes for the wire, without :attr:`attempt`.

        Raises:
            ProtocolError: a value is out of range, or params are not JSON.
        """
        self.validate()
        envelope = pb.Envelope()
        body = envelope.task
        body.episode = self.episode
        body.task = self.task
        if self.params:
            body.params_json = _json_of(self.params, self.episode)
        body.seed = self.seed
        body.purpose = _PURPOSES[self.purpose]
        body.priority = self.priority
        if self.max_steps is not None:
            body.max_steps = self.max_steps
        body.version = self.version
        body.record = self.record
        return seal(envelope)

    @classmethod
    def decode(cls, data: bytes, attempt: int = 0) -> EpisodeTask:
        """A task from the wire, checked.

        Raises:
            ProtocolError: anything is wrong with it.
        """
        body = open_envelope(data, "task").task
        task = cls(
            episode=body.episode,
            task=body.task,
            params=_params_of(body.params_json),
            seed=body.seed,
            purpose=_name_of(_PURPOSE_NAMES, body.purpose, "purpose"),
            priority=body.priority,
            max_steps=body.max_steps if body.HasField("max_steps") else None,
            version=body.version,
            record=body.record,
            attempt=attempt,
        )
        task.validate()
        return task

    def validate(self) -> None:
        """Check what other programs rely on.

        Raises:
            ProtocolError: naming what is wrong.
        """
        checked_name(self.episode, "episode id")
        checked_name(self.task, f"episode {self.episode}: task")
        if self.purpose not in _PURPOSES:
            raise ProtocolError(
                f"episode {self.episode}: purpose {self.purpose!r} is none of {', '.join(PURPOSES)}"
            )
        if not math.isfinite(self.priority):
            raise ProtocolError(f"episode {self.episode}: priority {self.priority} is not finite")
        if self.seed not in _INT64 or self.version not in _INT64 or self.version < 0:
            raise ProtocolError(
                f"episode {self.episode}: seed {self.seed} or version {self.version} out of range"
            )
        if self.max_steps is not None and (self.max_steps < 1 or self.max_steps not in _UINT32):
            raise ProtocolError(f"episode {self.episode}: max_steps {self.max_steps} is not positive")


@dataclass(frozen=True)
class EpisodeSummary:
    """How one episode went."""

    episode: str
    attempt: int
    task: str
    seed: int
    purpose: Purpose
    success: bool
    """The task's full raw reward was reached."""
    reward: float
    """Sum of the raw rewards, undiscounted."""
    steps: int
    seconds: float
    """Wall time from reset to end."""
    version: int
    """Parameter version at the last step."""
    epsilon: float
    """Exploration rate that acted."""
    worker: str
    outcome: Outcome
    fault: str = ""
    """What went wrong, one line, where ``outcome`` is ``fault``."""
    staleness: int = 0
    """Versions published between the parameters that acted last and the newest one then."""
    invalid_actions: int = 0

    def encode(self) -> bytes:
        """Bytes for the wire.

        Raises:
            ProtocolError: a value is out of range.
        """
        self.validate()
        envelope = pb.Envelope()
        body = envelope.summary
        for name in _SUMMARY_FIELDS:
            setattr(body, name, getattr(self, name))
        body.purpose = _PURPOSES[self.purpose]
        body.outcome = _OUTCOMES[self.outcome]
        return seal(envelope)

    @classmethod
    def decode(cls, data: bytes) -> EpisodeSummary:
        """A summary from the wire, checked.

        Raises:
            ProtocolError: anything is wrong with it.
        """
        body = open_envelope(data, "summary").summary
        summary = cls(
            purpose=_name_of(_PURPOSE_NAMES, body.purpose, "purpose"),
            outcome=_name_of(_OUTCOME_NAMES, body.outcome, "outcome"),
            **{name: getattr(body, name) for name in _SUMMARY_FIELDS},
        )
        summary.validate()
        return summary

    def validate(self) -> None:
        """Check what other programs rely on.

        Raises:
            ProtocolError: naming what is wrong.
        """
        checked_name(self.episode, "episode id")
        checked_name(self.task, f"episode {self.episode}: task")
        checked_name(self.worker, f"episode {self.episode}: worker", empty=True)
        checked_text(self.fault, f"episode {self.episode}: fault")
        if self.purpose not in _PURPOSES:
            raise ProtocolError(
                f"episode {self.episode}: purpose {self.purpose!r} is none of {', '.join(PURPOSES)}"
            )
        if self.outcome not in _OUTCOMES:
            raise ProtocolError(
                f"episode {self.episode}: outcome {self.outcome!r} is none of {', '.join(OUTCOMES)}"
            )
        for name in ("reward", "seconds", "epsilon"):
            if not math.isfinite(getattr(self, name)):
                raise ProtocolError(f"episode {self.episode}: {name} is not finite")
        for name in ("attempt", "steps", "staleness", "invalid_actions"):
            if getattr(self, name) not in _UINT32:
                raise ProtocolError(f"episode {self.episode}: {name} {getattr(self, name)} is out of range")
        if self.seed not in _INT64 or self.version not in _INT64 or self.version < 0:
            raise ProtocolError(
                f"episode {self.episode}: seed {self.seed} or version {self.version} out of range"
            )


_SUMMARY_FIELDS = (
    "episode",
    "attempt",
    "task",
    "seed",
    "success",
    "reward",
    "steps",
    "seconds",
    "version",
    "epsilon",
    "worker",
    "fault",
    "staleness",
    "invalid_actions",
)


def _json_of(params: Mapping[str, Any], episode: str) -> str:
    try:
        text = json.dumps(dict(params), separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise ProtocolError(f"episode {episode}: params cannot be written as JSON: {e}") from e
    return checked_text(text, f"episode {episode}: params")


def _params_of(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        params = json.loads(checked_text(text, "params"))
    except (ValueError, RecursionError) as e:
        raise ProtocolError(f"params are not JSON: {e}") from e
    if not isinstance(params, dict):
        raise ProtocolError(f"params are a {type(params).__name__} where a map belongs")
    return cast(dict[str, Any], params)


def _name_of(names: dict[int, T], number: int, what: str) -> T:
    try:
        return names[number]
    except KeyError:
        raise ProtocolError(f"unknown {what} number {number}") from None
