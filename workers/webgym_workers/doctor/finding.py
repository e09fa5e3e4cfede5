"""What a check found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["CheckResult", "Finding", "Number", "Status"]

Number = int | float | str | bool | None


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    """It works, but less well than it could."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """There was nothing to check, or what it needs is not there."""


@dataclass(frozen=True)
class Finding:
    """What a check says of this machine.

    Attributes:
        status: How it ended.
        found: What was found, for a person.
        mend: One line that mends it on this platform; empty when there is nothing to mend.
        numbers: What was measured, by name with its unit, for machines.
        usable: Whether checks that need what this one looked at can run; None is: unless it failed or was skipped.
    """

    status: Status
    found: str
    mend: str = ""
    numbers: Mapping[str, Number] = field(default_factory=dict)
    usable: bool | None = None

    @property
    def can_be_used(self) -> bool:
        """Whether checks that build on this one can run."""
        return self.status in (Status.OK, Status.WARNING) if self.usable is None else self.usable


@dataclass(frozen=True)
class CheckResult:
    """A finding with the name of its check and the seconds it took."""

    name: str
    finding: Finding
    seconds: float
