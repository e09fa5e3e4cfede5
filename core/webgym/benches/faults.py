"""``webgym bench faults``: a real run whose programs, browsers and server are killed and stopped all the time.

At the end the ledger of every episode is compared with what the server's queue knows.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym.bench import BenchResult, Column
from webgym.errors import UsageError

if TYPE_CHECKING:
    from webgym.benches.accounts import Account
    from webgym.benches.victims import RunUnderFire, TcpServer, Victim

__all__ = ["FaultsBench"]

_CALM_SECONDS = 90.0
"""Training that is left to the run in peace."""
_CHECKPOINT_SECONDS = 5.0
_OUTAGE_SECONDS = 30.0
_RECOVERY_PATIENCE = 150.0
_PAUSE = (1.0, 8.0)
"""Between two faults."""
_IMPATIENCE = 0.3
"""Share of faults after which the next one does not wait until the run has recovered."""

_KILLED = ("worker", "actor", "inference", "learner", "browser")
_WEIGHTS = (1, 2, 2, 2, 3)

_COLUMNS = (
    Column("what", "what"),
    Column("times", "times", 0),
    Column("median_recovery_seconds", "recovered after, median (s)"),
    Column("slowest_recovery_seconds", "slowest (s)"),
)

_MANIFEST = """
apiVersion: webgym.io/v1alpha1
kind: WebGymRun
metadata:
  name: under-fire
spec:
  task:
    name: {task}
  redis:
    url: {url}
  learner:
    checkpoint:
      intervalSeconds: {checkpoint}
  backoffLimit: 50
  stop:
    seconds: {seconds}
  evaluation:
    episodes: 100
    baseline: false
    film: false
"""


@dataclass
class _Fault:
    """One thing that was done to the run."""

    what: str
    victim: Victim | None = None
    recovered: float | None = None
    """Seconds until the run had moved on; None where nobody waited for it."""
    checkpoint_age: float | None = None
    """Of a killed learner: seconds since its last checkpoint, from its start on where there was none."""


@dataclass
class _Plan:
    """When to do the few things that happen a set number of times; seconds since the beginning."""

    minutes: float
    done: set[str] = field(default_factory=set)

    def due(self, elapsed: float) -> str | None:
        """What is to be done now, each once."""
        seconds = 60.0 * self.minutes
        shares = {"stop actor": 0.15, "restart server": 0.3, "stop learner": 0.45, "outage": 0.6}
        shares["stop inference"] = 0.85
        for what, share in shares.items():
            if elapsed >= share * seconds and what not in self.done:
                self.done.add(what)
                return what
        return None


class FaultsBench:
    """Kill, stop, and count."""

    help = (
        "kill and stop programs, browsers and the server of a real run at random, and reconcile its episodes"
    )
    title = "A run under fire"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "--minutes",
            type=float,
            default=5.0,
            metavar="M",
            help="of kills (default: 5; a calm minute and a half follows)",
        )
        parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the kills (default: 0)")
        parser.add_argument(
            "--task",
            default="miniwob.click-button",
            metavar="NAME",
            help="what is trained (default: click-button)",
        )
        parser.add_argument(
            "--keep", type=Path, metavar="DIR", help="new folder for the run, to look into it later"
        )

    def run(self, args: argparse.Namespace) -> BenchResult:
        """Do it once.

        Raises:
            BrokerError: no server can be started.
            RunError: the run does not begin, does not recover, or ends before its time.
        """
        if not args.minutes > 0:
            raise UsageError("--minutes must be positive")
        if args.keep is not None and args.keep.exists():
            raise UsageError(f"--keep {args.keep}: it exists already; name a new folder")
        with contextlib.ExitStack() as stack:
            folder = args.keep or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="webgym-bench-"))
            )
            folder.mkdir(parents=True, exist_ok=True)
            return _under_fire(args, folder.resolve())


def _under_fire(args: argparse.Namespace, folder: Path) -> BenchResult:
    from webgym.benches.accounts import read_books, reconcile
    from webgym.benches.victims import RunUnderFire, TcpServer
    from webgym.rundir import read_json_lines

    rng = random.Random(args.seed)
    faults: list[_Fault] = []
    with TcpServer(folder / "server") as server:
        manifest = _MANIFEST.format(
            task=args.task,
            url=server.url,
            checkpoint=_CHECKPOINT_SECONDS,
            seconds=round(60.0 * args.minutes + _CALM_SECONDS),
        )
        (folder / "under-fire.yaml").write_text(manifest)
        with RunUnderFire(folder, server) as run:
            run.wait_for_progress(_RECOVERY_PATIENCE, learning=True)
            began, plan = time.monotonic(), _Plan(args.minutes)
            while (elapsed := time.monotonic() - began) < 60.0 * args.minutes:
                fault = _do(plan.due(elapsed), run, server, rng)
                if fault is None:
                    run.rest(_PAUSE[0])
                    continue
                faults.append(fault)
                if rng.random() >= _IMPATIENCE or fault.what in plan.done:
                    fault.recovered = run.wait_for_progress(
                        _RECOVERY_PATIENCE,
                        learning=fault.what.endswith(("learner", "server", "outage")),
                        victim=fault.victim,
                    )
                run.rest(rng.uniform(*_PAUSE))
            firing = time.monotonic() - began
            summary = run.end(_CALM_SECONDS + 600.0)
        account = reconcile(read_json_lines(run.out / "episodes.jsonl"), read_books(server.client, run.keys))
    return _result(faults, firing, summary, account)


def _do(planned: str | None, run: RunUnderFire, server: TcpServer, rng: random.Random) -> _Fault | None:
    """What is planned, or any kill; None where there was nobody to kill."""
    if planned == "restart server":
        server.kill()
        server.start()
        return _Fault(planned)
    if planned == "outage":
        with server.stopped():
            run.rest(_OUTAGE_SECONDS)
        return _Fault(planned)
    if planned is not None:
        return _Fault(planned, run.stop(planned.removeprefix("stop "), _RECOVERY_PATIENCE))
    role = rng.choices(_KILLED, _WEIGHTS)[0]
    age = run.checkpoint_age() if role == "learner" else None
    victim = run.kill(role, rng)
    return None if victim is None else _Fault(f"kill {role}", victim, checkpoint_age=age)


def _result(faults: list[_Fault], firing: float, summary: dict[str, Any], account: Account) -> BenchResult:
    rows = []
    for what in sorted({fault.what for fault in faults}):
        times = sorted(f.recovered for f in faults if f.what == what and f.recovered is not None)
        rows.append(
            {
                "what": what,
                "times": sum(f.what == what for f in faults),
                "median_recovery_seconds": times[len(times) // 2] if times else None,
                "slowest_recovery_seconds": times[-1] if times else None,
            }
        )
    ages = [f.checkpoint_age for f in faults if f.checkpoint_age is not None]
    waits = [f.recovered for f in faults if f.recovered is not None]
    evaluation = summary.get("evaluation") or {}
    return BenchResult(
        figures={
            "seconds": round(firing, 1),
            "faults": len(faults),
            "kills": sum(f.what.startswith("kill ") for f in faults),
            "episodes": account.episodes,
            "lost": len(account.lost),
            "doubled": len(account.doubled),
            "unknown": len(account.unknown),
            "miscounted": account.miscounted,
            "never_played": account.never_played,
            "lost_updates": float(summary.get("lost_updates") or 0),
            "updates": float(summary.get("updates") or 0),
            "oldest_checkpoint_seconds": round(max(ages, default=0.0), 1),
            "checkpoint_interval_seconds": _CHECKPOINT_SECONDS,
            "slowest_recovery_seconds": round(max(waits, default=0.0), 1),
            "success": float(evaluation.get("success") or 0.0),
            "exit_code": float(summary.get("exit_code") or 0),
        },
        runs=1,
        rows=rows,
        columns=_COLUMNS,
        plotted="times",
        notes=(
            "The server is a Valkey of its own on TCP with an append-only file. It is killed and started again once, "
            f"and stopped for {_OUTAGE_SECONDS:g} s once; one process of each kind that can hang is stopped by SIGSTOP "
            "and left to the run to find. All else is SIGKILL.",
            "Recovered: the victim is gone, others of its kind are there, and another episode was completed; after "
            "faults of learner or server, updates went on as well.",
            "Lost: the queue took an episode's result and the ledger lacks it. Doubled: it is there twice. Unknown: it "
            "is there, and the queue has not seen it end. Miscounted: counters of the queue against episodes that it "
            "completed. Never played: dealt, and cancelled when training ended, or a learner was killed over queueing "
            "it.",
            "Oldest checkpoint: the most that a killed learner had not saved; what updates that cost is lost_updates.",
        ),
    )
