"""One command to the browser: its place in a tab's queue, its deadline, and whether it may be sent again.

Decisions only; :mod:`~webgym_workers.browser.session` carries them out.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from webgym_workers.browser.faults import BrowserFault, CDPError, CDPTimeout, ConnectionLost

__all__ = [
    "BYPASS",
    "DEFAULT_TIMEOUT",
    "MAX_IN_FLIGHT",
    "REPEATABLE",
    "RETRIES",
    "Command",
    "CommandQueue",
    "Priority",
    "may_repeat",
    "pause_before",
]

MAX_IN_FLIGHT = 5
"""Commands of one tab that the browser may be working on at a time; the rest wait their turn."""

DEFAULT_TIMEOUT = 2.0
"""Seconds until a command without a deadline of its own fails."""

RETRIES = 3
"""How often a command that is safe to repeat is sent again."""

BYPASS = frozenset(
    {
        "Debugger.resume",
        "Fetch.continueRequest",
        "Fetch.continueResponse",
        "Fetch.continueWithAuth",
        "Fetch.failRequest",
        "Fetch.fulfillRequest",
        "Input.cancelDragging",
        "Page.close",
        "Page.crash",
        "Page.handleJavaScriptDialog",
        "Page.stopLoading",
        "Runtime.runIfWaitingForDebugger",
        "Runtime.terminateExecution",
        "Target.closeTarget",
        "Target.detachFromTarget",
    }
)
"""Commands that skip the cap and the queue: they unblock the tab, and five calls blocked by an alert must not hold
back its answer.
"""

REPEATABLE = frozenset(
    {
        "Browser.getWindowBounds",
        "Browser.getWindowForTarget",
        "DOM.describeNode",
        "DOM.getBoxModel",
        "DOM.getContentQuads",
        "Network.getCookies",
        "Page.getFrameTree",
        "Page.getLayoutMetrics",
        "Page.getNavigationHistory",
        "Performance.getMetrics",
        "Runtime.getHeapUsage",
        "Storage.getCookies",
        "Target.getTargetInfo",
        "Target.getTargets",
    }
)
"""Pure reads, sent again without being asked to. ``Browser.getVersion`` is not among them: it is how a hung browser is
told, which has to take no longer than its deadline.
"""


class Priority(IntEnum):
    """Order in a tab's queue; commands of the same priority keep the order of the calls."""

    URGENT = 0
    """Commands in :data:`BYPASS`."""
    HIGH = 1
    NORMAL = 2
    LOW = 3
    """What may wait until the agent's own commands are through, such as measurements."""


def may_repeat(error: BrowserFault) -> bool:
    """Whether the cause of a failure may be over when the command is sent again."""
    if isinstance(error, CDPError):
        return error.document_replaced
    return isinstance(error, CDPTimeout | ConnectionLost)


def pause_before(retry: int) -> float:
    """Seconds to let go by before retry number 1, 2, 3: the document that replaces another one has to come first."""
    return 0.02 * 2.0 ** (retry - 1)


class Command:
    """One command from the call to its answer.

    ``future`` may be done (deadline, cancellation) while the browser still owes the answer: the command then
    keeps its place among those in flight until the answer comes, so that the cap counts what the browser
    really has on its plate.

    Attributes:
        id: Number of the message.
        method: Such as ``Page.navigate``.
        params: Its parameters.
        encoded: The same as JSON; empty for none.
        future: The result.
        timer: The deadline.
        capped: Whether it counts among those in flight.
        priority: Its place in the queue.
    """

    __slots__ = ("capped", "encoded", "future", "id", "method", "params", "priority", "timer")

    def __init__(
        self,
        id: int,
        method: str,
        params: dict[str, Any] | None,
        encoded: str,
        future: asyncio.Future[dict[str, Any]],
        *,
        capped: bool,
        priority: Priority = Priority.NORMAL,
    ) -> None:
        self.id = id
        self.method = method
        self.params = params
        self.encoded = encoded
        self.future = future
        self.timer: asyncio.TimerHandle | None = None
        bypass = method in BYPASS
        self.capped = capped and not bypass
        self.priority = Priority.URGENT if bypass else priority

    def fail(self, error: BaseException) -> None:
        """End it with an error, if it has not ended yet."""
        self.end()
        if not self.future.done():
            self.future.set_exception(error)

    def end(self) -> None:
        """Its deadline does not matter any more."""
        if self.timer is not None:
            self.timer.cancel()


class CommandQueue:
    """Which commands of a tab the browser has, and which wait for a place.

    Attributes:
        held: While it is, every command waits: there is no connection to send it over.
    """

    def __init__(self) -> None:
        self.held = False
        self._in_flight: dict[int, Command] = {}
        self._capped_in_flight = 0
        self._waiting: list[tuple[int, int, Command]] = []

    def __len__(self) -> int:
        """Commands that wait or that the browser has."""
        return len(self._in_flight) + len(self._waiting)

    def admit(self, command: Command) -> bool:
        """Whether a command is to be sent now; if not, it waits until :meth:`released` yields it."""
        if self.held or (command.capped and self._capped_in_flight >= MAX_IN_FLIGHT):
            heapq.heappush(self._waiting, (command.priority, command.id, command))
            return False
        self.enter(command)
        return True

    def enter(self, command: Command) -> None:
        """The command is sent, whatever the queue says."""
        self._in_flight[command.id] = command
        self._capped_in_flight += command.capped

    def leave(self, command: Command) -> None:
        """The browser has answered."""
        if self._in_flight.pop(command.id, None) is not None:
            self._capped_in_flight -= command.capped

    def released(self) -> Iterator[Command]:
        """Commands that have a place now, the most urgent first; they count as sent.

        Those whose caller gave up while they waited never reach the browser.
        """
        waiting = self._waiting
        while waiting and not self.held:
            command = waiting[0][2]
            if command.future.done():
                heapq.heappop(waiting)
                command.end()
            elif command.capped and self._capped_in_flight >= MAX_IN_FLIGHT:
                return
            else:
                heapq.heappop(waiting)
                self.enter(command)
                yield command

    def clear(self) -> list[Command]:
        """Forget and return all commands, in the order of the calls."""
        waiting = (command for _, _, command in self._waiting)
        commands = sorted(itertools.chain(self._in_flight.values(), waiting), key=lambda command: command.id)
        self._in_flight.clear()
        self._waiting.clear()
        self._capped_in_flight = 0
        return commands
