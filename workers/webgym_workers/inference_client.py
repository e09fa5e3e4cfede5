"""A browser process's side of the inference channel: Q values for a slot, awaited."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

import numpy as np
from numpy.typing import NDArray

from webgym.schema import Observation
from webgym_workers.slots import ObservationSlots, Reply, Request

__all__ = ["InferenceClient", "ParametersGone"]

logger = logging.getLogger(__name__)


class ParametersGone(Exception):
    """The pinned parameter version is in the store no more; the episode that asked for it is pointless."""


class InferenceClient:
    """Asks the inference process; one per browser process.

    The inference process may be killed and restarted at any time: a request without an answer is sent again.

    Args:
        slots: the shared observations.
        sock: our end of the channel.
        retry_seconds: when to ask again. Answers take about a millisecond, but the first parameters of a run can take
            the learner's whole start, so asking again must be harmless: only a slot's newest request is answered.
    """

    def __init__(self, slots: ObservationSlots, sock: socket.socket, retry_seconds: float = 2.0) -> None:
        self._slots = slots
        self._sock = sock
        self._retry = retry_seconds
        self._waiting: dict[int, tuple[int, asyncio.Future[int]]] = {}
        self._sequence = 0
        self._sending = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        sock.setblocking(False)
        self._loop.add_reader(sock, self._receive)

    def close(self) -> None:
        """Take no more answers."""
        self._loop.remove_reader(self._sock)

    async def q_values(
        self, slot: int, observation: Observation, version: int = 0
    ) -> tuple[NDArray[np.float32], int]:
        """Q values float32 (actions,) of an observation, and the parameter version they come from.

        Args:
            slot: the caller's own slot; one question at a time.
            observation: goes into the slot.
            version: 0 for the newest parameters, -v for the newest once they are version v or later, else the
                version to use.

        Raises:
            ParametersGone: that version does not exist any more.
        """
        self._slots.write(slot, observation)
        while True:
            self._sequence = (self._sequence + 1) & 0xFFFFFFFF
            future: asyncio.Future[int] = self._loop.create_future()
            self._waiting[slot] = (self._sequence, future)
            try:
                async with asyncio.timeout(self._retry):
                    await self._send(Request(slot, self._sequence, version))
                    used = await future
            except TimeoutError:
                continue
            finally:
                self._waiting.pop(slot, None)
            if used < 0:
                raise ParametersGone(f"parameters {version} are gone")
            return self._slots.q(slot), used

    async def _send(self, request: Request) -> None:
        try:
            try:
                self._sock.send(request.pack())
            except BlockingIOError:
                # The buffer is full: inference is behind, or dead and its successor will read it. An event loop knows
                # one writer of a socket only, a second would never be told.
                async with self._sending:
                    await self._loop.sock_sendall(self._sock, request.pack())
        except OSError as error:
            logger.debug("request not sent: %s", error)

    def _receive(self) -> None:
        while True:
            try:
                data = self._sock.recv(256)
            except (BlockingIOError, ConnectionError):
                return
            try:
                reply = Reply.unpack(data)
            except struct.error:
                continue
            sequence, future = self._waiting.get(reply.slot, (None, None))
            if future is not None and sequence == reply.sequence and not future.done():
                future.set_result(reply.version)
