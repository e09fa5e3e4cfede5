"""``webgym bench queue``: episodes through the whole cycle by several processes, some of them killed on the way."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import TYPE_CHECKING

from webgym.bench import BenchResult, Column
from webgym.errors import RunError, UsageError

if TYPE_CHECKING:
    from webgym.protocol import EpisodeTask
    from webgym.queue import SyncTaskQueue

__all__ = ["QueueBench"]

_LEASE_SECONDS = 30.0
_KILLED_LEASE_SECONDS = 1.0
_KILLS_PER_SECOND = 4.0
_PATIENCE = 60.0
_COLUMNS = (
    Column("what", "what"),
    Column("tasks_per_second", "tasks a second", 0),
    Column("tasks", "tasks", 0),
    Column("lost", "lost", 0),
    Column("doubled", "doubled", 0),
    Column("kills", "clients killed", 0),
)


@dataclass(frozen=True)
class _Case:
    """One way to use the queue."""

    what: str
    batch: int
    durable: bool
    """With an append-only file, synced once a second."""
    killed: bool = False
    """Whether clients are killed at random all the time."""


@dataclass
class _Ledger:
    """What came out of the queue."""

    completed: Counter[str] = field(default_factory=Counter)
    kills: int = 0


class QueueBench:
    """Add, lease, complete."""

    help = "add, lease and acknowledge episodes by 8 client processes, which in one case are killed at random"
    title = "Episodes through the queue: added, leased, acknowledged"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "--seconds", type=float, default=5.0, metavar="S", help="of each case (default: 5)"
        )
        parser.add_argument("--clients", type=int, default=8, metavar="N", help="processes (default: 8)")
        parser.add_argument(
            "--batch", type=int, default=100, metavar="N", help="episodes a call (default: 100)"
        )

    def run(self, args: argparse.Namespace) -> BenchResult:
        """Measure each case on a server of its own.

        Raises:
            BrokerError: no server can be started.
            RunError: a client died that nobody killed, or episodes do not come out.
        """
        if not args.seconds > 0 or args.clients < 1 or not 1 <= args.batch <= 10_000:
            raise UsageError("--seconds and --clients must be positive, --batch from 1 to 10000")
        cases = (
            _Case(f"batches of {args.batch}, append-only file synced every second", args.batch, True),
            _Case(f"batches of {args.batch}, in memory alone", args.batch, False),
            _Case("one by one, in memory alone", 1, False),
            _Case(f"batches of {args.batch}, in memory alone, clients killed", args.batch, False, True),
        )
        rows = [_measure(case, args.clients, args.seconds) for case in cases]
        return BenchResult(
            figures={
                "tasks_per_second": float(rows[0]["tasks_per_second"]),
                "tasks_per_second_in_memory": float(rows[1]["tasks_per_second"]),
                "tasks_per_second_one_by_one": float(rows[2]["tasks_per_second"]),
                "lost": float(sum(int(row["lost"]) for row in rows)),
                "doubled": float(sum(int(row["doubled"]) for row in rows)),
                "kills": float(rows[3]["kills"]),
                "batch": float(args.batch),
                "clients": float(args.clients),
            },
            runs=1,
            rows=rows,
            columns=_COLUMNS,
            plotted="tasks_per_second",
            notes=(
                f"Each of {args.clients} processes adds, leases and completes, over and over, for {args.seconds:g} s, "
                "each completion with the episode's summary; one more process reads and acknowledges the results, as "
                "the learner does. The server is one that WebGym starts itself, on a Unix socket.",
                f"Where clients are killed, {_KILLS_PER_SECOND:g} of them are each second, in the middle of whatever "
                f"they do, and leases last {_KILLED_LEASE_SECONDS:g} s; the rest then finish what is there.",
                "Lost: a client was told that it was added, and it never came out. Doubled: it came out twice.",
            ),
        )


def _measure(case: _Case, clients: int, seconds: float) -> dict[str, str | float | int]:
    from webgym.broker import BrokerConfig, EmbeddedBroker, connect
    from webgym.keys import Keys
    from webgym.queue import SyncTaskQueue

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="webgym-bench-")))
        broker = stack.enter_context(
            EmbeddedBroker(max_memory=0, append_only_dir=folder / "aof" if case.durable else None)
        )
        client = stack.enter_context(contextlib.closing(connect(BrokerConfig(broker.url))))
        queue = SyncTaskQueue(client, Keys("bench"), max_attempts=1000)
        crew = stack.enter_context(_Crew.at_work(case, clients, broker.url, folder))
        ledger = _Ledger()
        # From the first result on: how long processes take to start is not the queue's doing.
        _collect(queue, ledger, until=lambda: bool(ledger.completed), every=crew.check)
        before, start = queue.counts().done, time.monotonic()
        rng = random.Random(0)
        next_kill = start

        def act() -> None:
            nonlocal next_kill
            if case.killed and time.monotonic() >= next_kill:
                crew.replace(rng.randrange(clients))
                ledger.kills += 1
                next_kill = time.monotonic() + rng.uniform(0.5, 1.5) / _KILLS_PER_SECOND
            crew.check()

        _collect(queue, ledger, until=lambda: time.monotonic() >= start + seconds, every=act)
        rate = (queue.counts().done - before) / (time.monotonic() - start)
        crew.stop_adding()
        _collect(queue, ledger, until=crew.gone, every=crew.check)
        while _read(queue, ledger):
            pass
        added = crew.added()
        counted = int(queue.counters().get("episodes", 0))
    unique = len(ledger.completed)
    return {
        "what": case.what,
        "tasks_per_second": round(rate, 1),
        "tasks": unique,
        "lost": sum(1 for episode in added if episode not in ledger.completed),
        "doubled": sum(n - 1 for n in ledger.completed.values()) + abs(counted - unique),
        "kills": ledger.kills,
    }


class _Crew:
    """The client processes of one case."""

    def __init__(self, case: _Case, url: str, folder: Path) -> None:
        self._case = case
        self._url = url
        self._folder = folder
        self._context = multiprocessing.get_context("forkserver")
        # Forked from a server that has imported what they need: new ones start within milliseconds.
        self._context.set_forkserver_preload([__name__, "webgym.queue"])
        self._stop: Event = self._context.Event()
        self._processes: list[BaseProcess] = []
        self._born = 0

    @classmethod
    @contextlib.contextmanager
    def at_work(cls, case: _Case, count: int, url: str, folder: Path) -> Iterator[_Crew]:
        """So many clients, until the block ends."""
        crew = cls(case, url, folder)
        try:
            crew._processes = [crew._start() for _ in range(count)]
            yield crew
        finally:
            for process in crew._processes:
                process.kill()
                process.join()

    def _start(self) -> BaseProcess:
        self._born += 1
        lease = _KILLED_LEASE_SECONDS if self._case.killed else _LEASE_SECONDS
        arguments = (self._url, self._born, self._case.batch, lease, self._stop, self._folder)
        process = self._context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        return process

    def replace(self, index: int) -> None:
        """Kill a client, whatever it is doing, and start another."""
        self._processes[index].kill()
        self._processes[index].join()
        self._processes[index] = self._start()

    def stop_adding(self) -> None:
        """Let the clients finish what is there."""
        self._stop.set()

    def gone(self) -> bool:
        """Whether all have finished."""
        return all(process.exitcode is not None for process in self._processes)

    def check(self) -> None:
        """Make sure that none died by itself.

        Raises:
            RunError: one did.
        """
        if any(process.exitcode for process in self._processes):
            raise RunError("a client of the benchmark died by itself")

    def added(self) -> Iterator[str]:
        """Episodes that the clients were told are in the queue; each wrote it down before it went on."""
        for file in self._folder.glob("added-*"):
            client = file.name.removeprefix("added-")
            for line in file.read_text().splitlines():
                yield from (f"{client}-{number}" for number in range(*map(int, line.split())))


def _work(url: str, client: int, batch: int, lease_seconds: float, stop: Event, folder: Path) -> None:
    """A client: add, lease, complete; once it is to stop, until nothing is left."""
    from webgym.broker import BrokerConfig, connect
    from webgym.keys import Keys
    from webgym.protocol import EpisodeTask
    from webgym.queue import Completion, SyncTaskQueue

    queue = SyncTaskQueue(connect(BrokerConfig(url)), Keys("bench"), max_attempts=1000)
    name, number = f"client-{client}", 0
    with (folder / f"added-{client}").open("w", buffering=1) as diary:
        while True:
            if not stop.is_set():
                queue.add(
                    EpisodeTask(f"{client}-{n}", "bench", seed=n, priority=n % 3)
                    for n in range(number, number + batch)
                )
                diary.write(f"{number} {number + batch}\n")
                number += batch
            elif not queue.counts().open:
                return
            leased = queue.lease(name, batch, lease_seconds, 0.1 if stop.is_set() else 0.0)
            queue.complete_many(
                Completion(task.episode, task.attempt, _summary(task, name), {"episodes": 1})
                for task in leased
            )


def _summary(task: EpisodeTask, worker: str) -> bytes:
    from webgym.protocol import EpisodeSummary

    return EpisodeSummary(
        episode=task.episode,
        attempt=task.attempt,
        task=task.task,
        seed=task.seed,
        purpose=task.purpose,
        success=True,
        reward=1.0,
        steps=8,
        seconds=1.5,
        version=1,
        epsilon=0.1,
        worker=worker,
        outcome="terminated",
    ).encode()


def _collect(
    queue: SyncTaskQueue, ledger: _Ledger, *, until: Callable[[], bool], every: Callable[[], None]
) -> None:
    """Read results, as the learner does, until a condition holds.

    Raises:
        RunError: nothing comes any more, and the condition does not hold.
    """
    deadline = time.monotonic() + _PATIENCE
    while not until():
        every()
        if _read(queue, ledger):
            deadline = time.monotonic() + _PATIENCE
        elif time.monotonic() > deadline:
            raise RunError(f"nothing came out of the queue for {_PATIENCE:.0f} s: {queue.counts()}")


def _read(queue: SyncTaskQueue, ledger: _Ledger) -> int:
    found = queue.results(count=1000, block_seconds=0.05)
    queue.ack_results([result.id for result in found])
    ledger.completed.update(result.episode for result in found)
    return len(found)
