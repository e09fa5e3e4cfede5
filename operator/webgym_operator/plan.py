"""What a reconciliation wants done: writes to the cluster, a status, events, and when to look again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from webgym_operator.run import Object

__all__ = ["Action", "Create", "Delete", "DeleteRun", "Note", "Patch", "Plan"]


@dataclass(frozen=True)
class Create:
    """Make an object. One of that name being there already is no error."""

    body: Object

    def __str__(self) -> str:
        return f"create {self.body['kind']}/{self.body['metadata']['name']}"


@dataclass(frozen=True)
class Delete:
    """Remove an object. Its being gone already is no error."""

    kind: str
    name: str
    uid: str
    """Only this very object; one of the same name that came after it is left alone."""
    grace_seconds: int | None = None
    """For pods: time to end in good order; None for the pod's own."""
    why: str = ""

    def __str__(self) -> str:
        return f"delete {self.kind}/{self.name}: {self.why}"


@dataclass(frozen=True)
class Patch:
    """Merge into an object."""

    kind: str
    name: str
    body: Object

    def __str__(self) -> str:
        return f"patch {self.kind}/{self.name}"


@dataclass(frozen=True)
class DeleteRun:
    """Remove the run itself: its time to live is over."""


Action = Create | Delete | Patch | DeleteRun


@dataclass(frozen=True)
class Note:
    """An event that a person reads in ``kubectl describe``."""

    reason: str
    message: str
    kind: Literal["Normal", "Warning"] = "Normal"


@dataclass
class Plan:
    """The result of one reconciliation."""

    actions: list[Action] = field(default_factory=list)
    status: Mapping[str, object] | None = None
    """The whole status as it should be; None leaves it as it is."""
    notes: list[Note] = field(default_factory=list)
    wake_at: float | None = None
    """Seconds since the epoch: when time alone makes a difference; None: only news do."""

    def wake(self, at: float | None) -> None:
        """Look again then at the latest."""
        if at is not None:
            self.wake_at = at if self.wake_at is None else min(at, self.wake_at)

    @property
    def creates(self) -> list[Create]:
        """The creations among the actions."""
        return [a for a in self.actions if isinstance(a, Create)]

    @property
    def deletes(self) -> list[Delete]:
        """The deletions among the actions."""
        return [a for a in self.actions if isinstance(a, Delete)]
