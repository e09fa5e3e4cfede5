"""What a supervisor is given: programs, limits, a way to Redis; and what it gives back."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from webgym.errors import ExitCode
from webgym.run.snapshot import Snapshot

__all__ = ["Limits", "Link", "Outcome", "Programs"]


class Link(Protocol):
    """The run's Redis, as the supervisor needs it."""

    @property
    def url(self) -> str:
        """What programs connect to."""

    @property
    def pids(self) -> Collection[int]:
        """Processes of ours that serve it."""

    async def snapshot(self) -> Snapshot:
        """The run now. Raises OSError or WebGymError while the server cannot be reached."""

    async def lost(self) -> str:
        """Returns, with the reason, only when the server is gone for good."""

    def abandon(self) -> None:
        """End a server of ours that does not answer: whoever waits for it waits no longer."""


@dataclass(frozen=True)
class Programs:
    """Command lines of what the supervisor starts."""

    worker: Sequence[str]
    learner: Sequence[str]
    workers: int = 1
    trace_memory: bool = False
    """Whether each finds out where its memory grows."""

    @classmethod
    def installed(
        cls, *, workers: int = 1, learner_arguments: Sequence[str] = (), trace_memory: bool = False
    ) -> Programs:
        """This installation's own programs."""
        webgym = (sys.executable, "-P", "-m", "webgym")
        learner = (*webgym, "learner", *learner_arguments)
        return cls((*webgym, "worker"), learner, workers, trace_memory)


@dataclass(frozen=True)
class Limits:
    """How long the supervisor waits for what, in seconds."""

    poll: float = 0.5
    """Between two looks at the run."""
    learner_grace: float = 30.0
    """For the learner to write its checkpoint after SIGTERM."""
    worker_grace: float = 15.0
    """For a worker to end its browsers after SIGTERM."""
    unreachable: float = 60.0
    """Until a server that does not answer counts as lost."""
    silent: float = 30.0
    """Until a program without a heartbeat is taken for hung, and killed."""
    still: float | None = None
    """Until a run in which nothing moves at all is given up; after half of it inference is started anew. None: no
    limit.
    """
    futile_ends: int = 6
    """How often one program may end without progress in between."""
    training: float | None = None
    """Longest training; the learner's own budget should end it before. None: no limit."""
    evaluation: float | None = None
    """Longest evaluation, likewise."""
    total: float | None = None
    """Longest run altogether."""

    def overrun(self, phase: str, in_phase: float, total: float, still: float) -> tuple[str, str] | None:
        """Why a run has to end now, as (reason, message), or None.

        Args:
            phase: of the run.
            in_phase: seconds since it began.
            total: seconds since the run began.
            still: seconds since anything moved.
        """
        if self.total is not None and total > self.total:
            return "deadline", f"activeDeadlineSeconds: the run was not done after {self.total:.0f} s"
        if self.still is not None and still > self.still and phase != "done":
            return "stuck", f"nothing has moved for {still:.0f} s: no step, no update, no episode"
        if phase == "train" and self.training is not None and in_phase > self.training:
            return "overrun", f"training had not ended after {in_phase:.0f} s, far beyond its budget"
        if phase == "evaluate" and self.evaluation is not None and in_phase > self.evaluation:
            return "overrun", f"the evaluation had not ended after {in_phase:.0f} s, far beyond its budget"
        return None


@dataclass
class Outcome:
    """How a run ended, and what happened meanwhile."""

    code: int = ExitCode.OK
    stop_reason: str = ""
    """One or a few words: done, interrupted, broker lost, learner failed, ..."""
    message: str = ""
    """One line for the user when something went wrong."""
    seconds: float = 0.0
    restarts: dict[str, int] = field(default_factory=dict)
    """What was started anew, and how often: learner, worker, browser, ..."""
    events: list[str] = field(default_factory=list)
    """What a person should know, in order."""
    peak_memory_bytes: int = 0
    last: Snapshot = field(default_factory=Snapshot)
    """The last look at the run."""
    checkpoint: str = ""
    """What the learner first went on from, if it did."""
    began: bool = False
    """Whether the learner ever got to work."""
