"""What a run has to remember between two reconciliations, all of it in its status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from webgym_operator.failures import Failure, classify
from webgym_operator.observed import PodView
from webgym_operator.plan import Note

__all__ = ["Ledger"]


@dataclass(frozen=True)
class Ledger:
    """Counted failures.

    A pod that ended is counted in one write of the status that also names the pod; only then is the pod removed, and
    its name leaves the status after it. So each counts once, wherever the operator is killed.
    """

    restarts: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    last_failure: str = ""
    counted: frozenset[str] = frozenset()
    """Pods that the status names: they may go."""
    permanent: Failure | None = None
    """A failure, not counted away yet, that trying again cannot mend."""
    notes: tuple[Note, ...] = ()

    @classmethod
    def of(cls, status: Mapping[str, Any]) -> Ledger:
        """As the status has it."""
        failures = status.get("failures")
        counted = status.get("countedPods")
        return cls(
            restarts=int(status.get("restarts") or 0),
            failures=dict(failures) if isinstance(failures, Mapping) else {},
            last_failure=str(status.get("lastFailure") or ""),
            counted=frozenset(counted) if isinstance(counted, list) else frozenset(),
        )

    def settled(self, pod: PodView) -> bool:
        """Whether the end of a pod needs no more counting."""
        return pod.uid in self.counted

    def update(self, pods: tuple[PodView, ...]) -> Ledger:
        """With the ends that were not counted yet.

        Pods that somebody removes are left out, whatever they end with: their end was wanted.
        """
        result = self
        uids = {pod.uid for pod in pods}
        counted = set(self.counted & uids)
        for pod in sorted(pods, key=lambda p: (p.finished_at or 0.0, p.name)):
            if pod.delete_by is not None or pod.role not in ("worker", "learner"):
                continue
            if pod.phase not in ("Failed", "Succeeded"):
                continue
            failure = classify(pod)
            if failure is not None and failure.permanent:
                result = replace(result, permanent=failure)
            if pod.uid in counted:
                continue
            counted.add(pod.uid)
            if failure is not None:
                result = result._with(failure)
        return replace(result, counted=frozenset(counted))

    def _with(self, failure: Failure) -> Ledger:
        notes = (*self.notes, Note(failure.reason, failure.message, "Warning"))
        if not failure.counted:
            return replace(self, last_failure=failure.message, notes=notes)
        failures = {**self.failures, failure.kind: self.failures.get(failure.kind, 0) + 1}
        return replace(
            self,
            restarts=self.restarts + 1,
            failures=failures,
            last_failure=failure.message,
            notes=notes,
        )
