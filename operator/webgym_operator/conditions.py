"""The conditions of a run: a map of type to status, reason and message, with the time of the last change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from webgym_operator.run import Object, time_text

__all__ = ["Condition", "condition_of", "merge_conditions"]

Truth = Literal["True", "False", "Unknown"]
_ORDER = ("Succeeded", "Ready", "Progressing", "Suspended", "BrowserSandbox")
_LONGEST = 2048


@dataclass(frozen=True)
class Condition:
    """One aspect of a run."""

    type: str
    status: Truth
    reason: str
    message: str = ""


def condition_of(status: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    """The condition of a type in a status as written; empty where there is none."""
    conditions = status.get("conditions")
    if isinstance(conditions, list):
        for one in conditions:
            if isinstance(one, Mapping) and one.get("type") == type_:
                return one
    return {}


def merge_conditions(
    status: Mapping[str, Any], conditions: Iterable[Condition], *, generation: int, now: float
) -> list[Object]:
    """The conditions as they are to be written, in a fixed order; times change with the status alone."""
    merged: list[Object] = []
    for one in sorted(conditions, key=lambda c: (_ORDER.index(c.type) if c.type in _ORDER else 99, c.type)):
        before = condition_of(status, one.type)
        same = before.get("status") == one.status and before.get("lastTransitionTime")
        merged.append(
            {
                "type": one.type,
                "status": one.status,
                "reason": one.reason,
                # Never empty: servers of 1.20 take an empty text for none, and refuse the whole status.
                "message": one.message[:_LONGEST] or one.reason,
                "lastTransitionTime": before["lastTransitionTime"] if same else time_text(now),
                "observedGeneration": generation,
            }
        )
    return merged
