"""How a child program ended, and whether it is started again."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass

from webgym.errors import ExitCode

__all__ = ["Exit", "RestartPolicy", "describe_exit"]


def describe_exit(code: int) -> str:
    """Words for an exit status: signals, exit codes of ours, and 128+n as a shell or a container reports
    them.

    >>> describe_exit(-9)
    'killed by SIGKILL'
    >>> describe_exit(137)
    'exit 137 (SIGKILL; out of memory if nobody sent it)'
    >>> describe_exit(2)
    'exit 2 (usage)'
    """
    if code < 0:
        return f"killed by {_signal_name(-code)}"
    if code == 128 + signal.SIGKILL:
        return "exit 137 (SIGKILL; out of memory if nobody sent it)"
    if code in ExitCode.__members__.values():
        return f"exit {code} ({ExitCode(code).name.lower().replace('_', ' ')})"
    if 128 < code < 128 + signal.NSIG:
        return f"exit {code} ({_signal_name(code - 128)})"
    return f"exit {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True)
class Exit:
    """How one incarnation of a child ended."""

    code: int
    """As :attr:`subprocess.Popen.returncode`: negative for a signal."""
    reason: str
    """For people: :func:`describe_exit`, and the child's last word where it left one."""
    seconds: float
    """How long it ran."""
    time: float
    """When it ended, Unix time."""
    word: str = ""
    """The first line of its last word, if it failed and left one."""


@dataclass(frozen=True)
class RestartPolicy:
    """When a child that ended is started again.

    Delays grow with the failures inside the window, so a child that fails now and then is back at once while
    one that cannot start does not burn the machine.
    """

    max_failures: int = 5
    """More failures than this within the window end it for good. 0: never restarted."""
    window_seconds: float = 60.0
    """Failures longer ago do not count. Infinite: only progress (:meth:`ManagedProcess.note_progress`) forgives."""
    initial_delay: float = 0.2
    """Seconds before the first restart; doubled for each further failure inside the window."""
    max_delay: float = 10.0
    final_codes: frozenset[int] = frozenset(
        {ExitCode.OK, ExitCode.USAGE, ExitCode.DIVERGED, ExitCode.UNAVAILABLE}
    )
    """Exit codes that trying again cannot change."""
    proving_seconds: float = 0.0
    """Exit 1 within so many seconds of the very first start is final too: a program that explains why it
    cannot work here, and never has, will not work a moment later.
    """

    @classmethod
    def never(cls) -> RestartPolicy:
        """Whatever happens, the first exit is the last."""
        return cls(max_failures=0)

    def delay(self, failures: Iterable[float], now: float) -> float | None:
        """Seconds to wait before the next start, or None to give up.

        Args:
            failures: times of all failures so far, the one just seen included (any one clock, seconds).
            now: the same clock now.
        """
        recent = sum(1 for t in failures if now - t <= self.window_seconds)
        if recent > self.max_failures:
            return None
        return float(min(self.max_delay, self.initial_delay * 2 ** max(0, recent - 1)))
