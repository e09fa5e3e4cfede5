"""``webgym bench params``: from a publication until every worker has the parameters, checked and ready."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

import numpy as np

from webgym.bench import BenchResult, Column
from webgym.errors import RunError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ParamsBench"]

_SCHEMA = "bench"
_WARM_UP = 2
_PATIENCE = 60.0
_MEGABYTES = 10
_COLUMNS = (
    Column("what", "what"),
    Column("median_ms", "median, ms"),
    Column("p95_ms", "95 of 100 below, ms"),
    Column("wire_mb", "on the wire, MB", 2),
)


class ParamsBench:
    """Publishing parameters to several workers."""

    help = "publish 10 MB of parameters until 8 worker processes have them"
    title = "From publication to parameters in every worker"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("--runs", type=int, default=30, metavar="N", help="publications (default: 30)")
        parser.add_argument("--workers", type=int, default=8, metavar="N", help="processes (default: 8)")

    def run(self, args: argparse.Namespace) -> BenchResult:
        """Measure on a server of its own.

        Raises:
            BrokerError: no server can be started.
            RunError: a worker died.
        """
        from webgym.broker import BrokerConfig, EmbeddedBroker, connect
        from webgym.keys import Keys
        from webgym.params import SyncParameterStore

        if args.runs < 1 or args.workers < 1:
            raise UsageError("--runs and --workers must be at least 1")
        keys = Keys("bench")
        state = _state()
        published: list[float] = []
        first: list[float] = []
        visible: list[float] = []
        with (
            EmbeddedBroker() as broker,
            contextlib.closing(connect(BrokerConfig(broker.url))) as client,
            _workers(args.workers, broker.url, keys.uid) as workers,
        ):
            store = SyncParameterStore(client, keys)
            for version in range(1, _WARM_UP + args.runs + 1):
                start = time.monotonic()
                store.publish(version, 1, state, _SCHEMA)
                done = time.monotonic()
                arrived = _arrivals(workers, version)
                if version > _WARM_UP:
                    published.append(done - start)
                    first.append(min(arrived) - start)
                    visible.append(max(arrived) - start)
            fields = client.hgetall(keys.params_version(version))
            wire = sum(len(value) for value in fields.values()) / 1e6
        rows = [
            {
                "what": what,
                "median_ms": round(statistics.median(seconds) * 1e3, 2),
                "p95_ms": round(float(np.percentile(seconds, 95)) * 1e3, 2),
                "wire_mb": round(wire, 3),
            }
            for what, seconds in (
                (f"all {args.workers} workers have them", visible),
                ("the first worker has them", first),
                ("publish returns", published),
            )
        ]
        total = sum(array.nbytes for array in state.values()) / 1e6
        return BenchResult(
            figures={
                "median_ms": float(str(rows[0]["median_ms"])),
                "float32_mb": round(total, 3),
                "wire_mb": round(wire, 3),
            },
            runs=args.runs,
            rows=rows,
            columns=_COLUMNS,
            plotted="median_ms",
            notes=(
                f"{total:.1f} MB of float32 in {len(state)} tensors, {wire:.1f} MB on the wire, through a server that "
                "WebGym starts itself, on a Unix socket. From before the call that publishes until a worker holds "
                "float32 tensors whose checksum and values it has checked; each publication waits until all had the "
                "last.",
                "All workers, the publisher and the server share this machine's cores.",
            ),
        )


def _state() -> dict[str, NDArray[np.float32]]:
    """Ten megabytes of numbers as a network has them."""
    rng = np.random.default_rng(0)
    count = _MEGABYTES * 1_000_000 // 4 // 10
    return {f"layer.{i}.weight": (rng.normal(size=count) / 16).astype(np.float32) for i in range(10)}


@contextlib.contextmanager
def _workers(count: int, url: str, uid: str) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "webgym.params"])
    ends = [context.Pipe(duplex=False) for _ in range(count)]
    processes = [context.Process(target=_follow, args=(url, uid, send), daemon=True) for _, send in ends]
    try:
        for process, (_, send) in zip(processes, ends, strict=True):
            process.start()
            send.close()  # So that a worker's death ends its connection.
        yield [receive for receive, _ in ends]
    finally:
        for process in processes:
            process.kill()
            process.join()


def _follow(url: str, uid: str, report: Connection) -> None:
    """A worker: fetch each version as it comes, and tell when it was there."""
    from webgym.broker import BrokerConfig, connect
    from webgym.keys import Keys
    from webgym.params import SyncParameterStore

    store = SyncParameterStore(connect(BrokerConfig(url)), Keys(uid))
    known = 0
    while True:
        if store.wait_newer(known, _PATIENCE) != known:
            known = store.fetch(None, _SCHEMA).version
            # The system's clock, not the process's: the same for all of them.
            report.send((known, time.monotonic()))


def _arrivals(workers: list[Connection], version: int) -> list[float]:
    """When each worker had that version, by the system's monotonic clock."""
    left, times, deadline = set(workers), [], time.monotonic() + _PATIENCE
    while left:
        ready = wait(list(left), timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            raise RunError(f"{len(left)} workers did not get version {version} in {_PATIENCE:.0f} s")
        for connection in ready:
            assert isinstance(connection, Connection)
            try:
                found, at = connection.recv()
            except EOFError:
                raise RunError("a worker of the benchmark died") from None
            if found == version:
                times.append(at)
                left.discard(connection)
    return times
