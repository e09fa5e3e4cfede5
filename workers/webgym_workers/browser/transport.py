"""What carries messages to a browser and back, whatever it is made of."""

from __future__ import annotations

from typing import Protocol

__all__ = ["MAX_MESSAGE_BYTES", "Receiver", "Transport"]

MAX_MESSAGE_BYTES = 256 << 20
"""A single message above this is taken for a broken stream rather than buffered without end."""


class Transport(Protocol):
    """One connection to a browser."""

    @property
    def closing(self) -> bool:
        """Whether it takes no more messages."""
        ...

    def write(self, message: str) -> None:
        """Send a message; JSON in ASCII."""
        ...

    def abort(self) -> None:
        """End it at once, without flushing to a browser that may hang."""
        ...


class Receiver(Protocol):
    """Who gets what a transport brings."""

    def received(self, message: str) -> None:
        """One message, whole."""
        ...

    def lost(self, transport: Transport, why: str) -> None:
        """The connection has ended."""
        ...
