"""Whether a run is over, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from webgym_operator.conditions import condition_of
from webgym_operator.ledger import Ledger
from webgym_operator.observed import Life, Observed
from webgym_operator.run import Run, seconds_of

__all__ = ["Verdict", "active_seconds", "judge", "recorded_verdict", "told_reason"]

_ENDED = re.compile(r"training ended \((.+?)\)")


@dataclass(frozen=True)
class Verdict:
    """How a run ended."""

    succeeded: bool
    reason: str
    message: str


def recorded_verdict(status: Mapping[str, Any]) -> Verdict | None:
    """The verdict that a status holds; a run that has one never runs again."""
    succeeded = condition_of(status, "Succeeded")
    if not status.get("completionTime") or succeeded.get("status") not in ("True", "False"):
        return None
    return Verdict(
        succeeded["status"] == "True", str(succeeded.get("reason", "")), str(succeeded.get("message", ""))
    )


def active_seconds(status: Mapping[str, Any], now: float) -> float:
    """How long a run has been active: since its start, without its suspensions."""
    before = float(status.get("activeSeconds") or 0)
    suspended = condition_of(status, "Suspended")
    if suspended.get("status") == "True":
        return before
    since = seconds_of(suspended.get("lastTransitionTime")) or seconds_of(status.get("startTime"))
    return before if since is None else before + max(0.0, now - since)


def judge(run: Run, observed: Observed, ledger: Ledger, now: float) -> Verdict | None:
    """The verdict on a run that had none; None while it goes on.

    Args:
        run: with a valid spec.
        observed: what is seen of it.
        ledger: with every end counted that is seen.
        now: seconds since the epoch.
    """
    figures = observed.figures
    done = figures is not None and figures.snapshot.phase == "done"
    if done and not _learning(observed, now):
        assert figures is not None
        return Verdict(True, "Completed", _summary(figures.snapshot.reason, figures.snapshot.success))
    if ledger.permanent is not None and not done:
        return Verdict(False, ledger.permanent.reason, ledger.permanent.message)
    if ledger.restarts > run.spec.backoff_limit and not done:
        message = (
            f"programs failed {ledger.restarts} times, backoffLimit is {run.spec.backoff_limit}; "
            f"the last: {ledger.last_failure}"
        )
        return Verdict(False, "BackoffLimitExceeded", message)
    limit = run.spec.active_deadline_seconds
    if limit is not None and active_seconds(run.status, now) > limit and run.status.get("startTime"):
        return Verdict(False, "DeadlineExceeded", f"activeDeadlineSeconds: not done after {limit} s")
    return None


def _learning(observed: Observed, now: float) -> bool:
    """Whether a learner still writes its last files."""
    return any(pod.life(now) in (Life.LIVE, Life.LEAVING) for pod in observed.of("learner"))


def _summary(reason: str, success: float | None) -> str:
    rate = "" if success is None else f", success rate {success:.3g}"
    return f"training ended ({reason or 'done'}){rate}"


def told_reason(verdict: Verdict) -> str:
    """In one word why training ended, as ``webgym run`` has it (``success``, ``seconds``, ...), or why it failed."""
    told = _ENDED.match(verdict.message) if verdict.succeeded else None
    return told[1] if told else verdict.reason
