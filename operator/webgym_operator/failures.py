"""Why a pod ended, whose fault it was, and whether trying again can help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from webgym.errors import ExitCode
from webgym_operator.observed import ContainerEnd, PodView

__all__ = ["Failure", "FailureClass", "classify", "retry_delay"]

FailureClass = Literal["site", "browser", "agent", "infrastructure"]

_KILLED, _TERMINATED = 137, 143
_LONGEST_DELAY = 300.0


@dataclass(frozen=True)
class Failure:
    """What the end of a pod means."""

    kind: FailureClass
    reason: str
    """One CamelCase word."""
    message: str
    """For people: which program, what happened, what to do."""
    counted: bool = True
    """Whether it counts against ``backoffLimit``."""
    permanent: bool = False
    """Whether trying again cannot help."""


def classify(pod: PodView) -> Failure | None:
    """What the end of a pod means; None where it ended well, or has not ended.

    Faults of sites cost their episode and no pod, so no pod's end is of that class but by its own word.
    """
    if pod.phase != "Failed":
        return None
    if pod.disruption:
        return Failure(
            "infrastructure",
            "Disrupted",
            f"{pod.program}: its node ended it ({pod.disruption})",
            counted=False,
        )
    end = pod.end or ContainerEnd(-1)
    word = _first_line(end.message)
    code = f"exit code {end.exit_code}"
    if end.reason == "OOMKilled" or (end.exit_code == _KILLED and "memory" in word):
        mend = f"raise {_part(pod)}.resources.limits.memory"
        if pod.role == "worker":
            mend += ", or allow fewer browsers by workers.maxBrowsers"
        message = f"{pod.program}: out of memory, killed by the kernel (exit code 137, OOMKilled): {mend}"
        return Failure("agent" if pod.role == "learner" else "browser", "OutOfMemory", message)
    said = f": {word}" if word else ""
    match end.exit_code:
        case ExitCode.USAGE:
            return Failure("agent", "InvalidConfiguration", f"{pod.program} ({code}){said}", permanent=True)
        case ExitCode.DIVERGED:
            return Failure("agent", "Diverged", f"{pod.program} ({code}){said}", permanent=True)
        case ExitCode.BROKER_LOST:
            # Redis comes back or it does not; the run waits either way, until its deadline.
            return Failure("infrastructure", "RedisLost", f"{pod.program} ({code}){said}", counted=False)
        case ExitCode.UNAVAILABLE:
            return Failure("browser", "BrowserUnavailable", f"{pod.program} ({code}){said}")
        case code_ if code_ == _TERMINATED:
            message = f"{pod.program}: ended from outside by SIGTERM"
            return Failure("infrastructure", "Terminated", message, counted=False)
        case code_ if code_ == _KILLED:
            return Failure("infrastructure", "Killed", f"{pod.program}: killed from outside ({code}){said}")
    if "No space left" in word or "ENOSPC" in word:
        mend = "its volume is full: raise storage.size or lower learner.checkpoint.keep"
        return Failure("infrastructure", "StorageFull", f"{pod.program} ({code}){said}; {mend}")
    kind: FailureClass = "browser" if pod.role == "worker" else "agent"
    return Failure(kind, "ProgramFailed", f"{pod.program} ({code}){said}")


def retry_delay(failure: Failure | None, restarts: int) -> float:
    """Seconds between the end of a pod and its successor.

    Args:
        failure: of the pod; None where it ended well although it should not have ended.
        restarts: counted failures of the run, this one included.
    """
    if failure is not None and failure.reason in ("Disrupted", "Terminated"):
        return 1.0
    if failure is None or not failure.counted:
        return 5.0
    return min(_LONGEST_DELAY, 2.0 ** min(max(restarts, 1), 10))


def _part(pod: PodView) -> str:
    return {"worker": "workers", "learner": "learner"}.get(pod.role, pod.role)


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # A program's last word is one line; of a log's end, the last line says most.
    return lines[-1][:500] if lines else ""
