"""The inference process of a worker: Q values for all its browsers, in batches, with the newest parameters.

Batches form by themselves: whatever requests have arrived while the last batch was computed make the next one. A thread
fetches parameters as they are published; the loop swaps them in between two batches, so no request waits for Redis.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import selectors
import socket
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

import torch

from webgym.broker import connect
from webgym.connection import broker_config
from webgym.errors import BrokerError, ProtocolError
from webgym.keys import Keys
from webgym.params import MissingParameters, SyncParameterStore
from webgym.program import Drain, ProgramContext, run_program
from webgym.protocol import Parameters
from webgym.schema import Schema, observation_schema
from webgym_policy.network import PolicyNetwork, infer, load_parameters
from webgym_workers.pulse import BEAT_SECONDS, add_pulse_arguments, pulse_of
from webgym_workers.slots import ObservationSlots, Reply, Request

__all__ = ["InferenceLoop", "ParameterFeed", "main"]

logger = logging.getLogger(__name__)

_PINNED_PATIENCE = 0.1
"""Seconds at most before a pinned version that is asked for is looked up."""
_PINNED_KEPT = 3
_RETRY_SECONDS = 0.5
_MISSING_SECONDS = 0.02


class ParameterFeed(threading.Thread):
    """Follows the parameter store in the background.

    Args:
        store: a store with its own connection; only this thread uses it.
        schema_hash: parameters of another schema are refused.
        wake: called after new parameters arrived, from this thread.
    """

    def __init__(self, store: SyncParameterStore, schema_hash: str, wake: Callable[[], None]) -> None:
        super().__init__(name="parameters", daemon=True)
        self._store = store
        self._schema_hash = schema_hash
        self._wake = wake
        self._lock = threading.Lock()
        self._newest: Parameters | None = None
        self._wanted: set[int] = set()
        self._pinned: OrderedDict[int, Parameters | None] = OrderedDict()
        self._refused: set[int] = set()
        self._stopping = threading.Event()

    def newest(self) -> Parameters | None:
        """The newest parameters seen so far."""
        with self._lock:
            return self._newest

    def pinned(self, version: int) -> tuple[bool, Parameters | None]:
        """Parameters of one version: (known, parameters); (True, None) when the store has them no more."""
        with self._lock:
            if self._newest is not None and self._newest.version == version:
                return True, self._newest
            if version in self._pinned:
                return True, self._pinned[version]
            self._wanted.add(version)
        return False, None

    def run(self) -> None:
        """Follow the store until :meth:`stop`."""
        while not self._stopping.is_set():
            try:
                self._fetch_pinned()
                known = self._newest.version if self._newest else 0
                newest = self._store.wait_newer(known, _PINNED_PATIENCE)
                if newest not in (0, known):
                    self._fetch_newest(newest)
            except MissingParameters:
                # Trimmed between the look and the fetch, so there is a newer one; or the index names what is not there,
                # which must not make this thread spin.
                self._stopping.wait(_MISSING_SECONDS)
            except BrokerError as error:
                logger.warning("parameters: %s", error)
                self._stopping.wait(_RETRY_SECONDS)

    def _refuse(self, version: int, error: ProtocolError) -> None:
        """Tell once of a version that cannot be used; it may stay for long, and be asked for all the while."""
        if version not in self._refused:
            self._refused.add(version)
            logger.warning("parameters: %s", error)
        self._stopping.wait(_RETRY_SECONDS)

    def _fetch_newest(self, version: int) -> None:
        try:
            fetched = self._store.fetch(version, self._schema_hash)
        except ProtocolError as error:
            self._refuse(version, error)
            return
        with self._lock:
            self._newest = fetched
        self._wake()

    def _fetch_pinned(self) -> None:
        with self._lock:
            wanted = list(self._wanted)
        for version in wanted:
            try:
                fetched: Parameters | None = self._store.fetch(version, self._schema_hash)
            except MissingParameters:
                fetched = None
            except ProtocolError as error:
                self._refuse(version, error)
                continue
            with self._lock:
                self._wanted.discard(version)
                self._pinned[version] = fetched
                while len(self._pinned) > _PINNED_KEPT:
                    self._pinned.popitem(last=False)
            self._wake()

    def stop(self) -> None:
        """End the thread at its next look."""
        self._stopping.set()


class InferenceLoop:
    """Answers requests from datagram sockets out of the shared slots.

    Args:
        schema: sizes of the observation.
        hidden_size: width of the network.
        dueling: as the learner's network.
        slots: the shared observations.
        sockets: one for each browser process.
        feed: where parameters come from.
        pulse: told at each turn, :data:`~webgym_workers.pulse.BEAT_SECONDS` apart at most, how many requests were
            answered so far.
    """

    def __init__(
        self,
        schema: Schema,
        hidden_size: int,
        dueling: bool,
        slots: ObservationSlots,
        sockets: list[socket.socket],
        feed: ParameterFeed,
        pulse: Callable[[int], None] = lambda done: None,
    ) -> None:
        self._pulse = pulse
        self._slots = slots
        self._feed = feed
        self._networks = {key: PolicyNetwork(schema, hidden_size, dueling) for key in ("newest", "pinned")}
        self._loaded = {"newest": 0, "pinned": 0}
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        for sock in sockets:
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ)
        self._waiting: list[tuple[socket.socket, Request]] = []
        self.batches = 0
        self.requests = 0

    def wake(self) -> None:
        """Look at waiting requests again; safe from any thread."""
        with contextlib.suppress(BlockingIOError):
            self._wake_write.send(b"\0")

    def run(self, drain: Drain) -> None:
        """Serve until a drain is asked for."""
        self._selector.register(drain, selectors.EVENT_READ)
        while not drain.requested:
            self._pulse(self.requests)
            self._receive()
            self._serve()

    def _receive(self) -> None:
        for key, _ in self._selector.select(BEAT_SECONDS):
            sock = key.fileobj
            if not isinstance(sock, socket.socket):
                continue
            while True:
                try:
                    data = sock.recv(4096)
                except BlockingIOError:
                    break
                if sock is self._wake_read:
                    continue
                try:
                    self._waiting.append((sock, Request.unpack(data)))
                except struct.error:
                    logger.warning("a request of %d bytes is not one", len(data))

    def _serve(self) -> None:
        """Answer what can be answered; requests for parameters that are still on their way keep waiting."""
        # An actor that asked again gave up its earlier request: only the newest of a slot counts.
        newest_request = {request.slot: (sock, request) for sock, request in self._waiting}
        self._waiting = []
        by_version: dict[int, list[tuple[socket.socket, Request]]] = {}
        for sock, request in newest_request.values():
            by_version.setdefault(request.version, []).append((sock, request))
        for version, group in by_version.items():
            known, parameters = self._feed.pinned(version) if version > 0 else (True, self._feed.newest())
            if version > 0 and known and parameters is None:
                self._answer(group, -1)
            elif parameters is None or parameters.version < -version:
                self._waiting.extend(group)
            else:
                name = "pinned" if version > 0 else "newest"
                if self._loaded[name] != parameters.version:
                    load_parameters(self._networks[name], parameters.state)
                    self._loaded[name] = parameters.version
                slots = [request.slot for _, request in group]
                q = infer(self._networks[name], self._slots.read(slots))
                self._slots.write_q(slots, q)
                self.batches += 1
                self.requests += len(group)
                self._answer(group, parameters.version)

    @staticmethod
    def _answer(group: list[tuple[socket.socket, Request]], version: int) -> None:
        for sock, request in group:
            try:
                sock.send(Reply(request.slot, request.sequence, version).pack())
            except (BlockingIOError, ConnectionError, OSError):
                # The browser process is gone, or drowned in replies it never asked for; it will ask again.
                logger.warning("a reply for slot %d found nobody", request.slot)


def main(argv: list[str] | None = None) -> int:
    """``python -m webgym_workers.inference``: started by the worker program, never by hand."""
    parser = argparse.ArgumentParser(prog="webgym-inference")
    parser.add_argument("--memory-fd", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--socket-fds", required=True, help="comma-separated")
    add_pulse_arguments(parser)
    args = parser.parse_args(argv)

    def body(context: ProgramContext, drain: Drain) -> int:
        torch.set_num_threads(1)
        spec = context.manifest.spec
        schema = observation_schema(spec.observation)
        keys = Keys(context.run_uid)
        slots = ObservationSlots(schema, args.slots, args.memory_fd)
        sockets = [socket.socket(fileno=int(fd)) for fd in args.socket_fds.split(",")]
        store = SyncParameterStore(connect(broker_config(spec.redis, context.redis_url)), keys)
        feed = ParameterFeed(store, schema.hash, lambda: loop.wake())
        pulse = pulse_of(args)
        loop = InferenceLoop(
            schema, spec.policy.hidden_size, spec.learner.dueling, slots, sockets, feed, pulse
        )
        feed.start()
        started = time.monotonic()
        try:
            loop.run(drain)
        finally:
            feed.stop()
        logger.info(
            "%d requests in %d batches, %.0f s", loop.requests, loop.batches, time.monotonic() - started
        )
        return 0

    return run_program(body)


if __name__ == "__main__":
    raise SystemExit(main())
