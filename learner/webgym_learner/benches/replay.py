"""``webgym bench replay``: batches drawn from a large replay, and a whole update of the network on one of them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from webgym.bench import BenchResult, Column, check_counts

if TYPE_CHECKING:
    from webgym.schema import Schema
    from webgym_learner.replay import PrioritizedReplay, ReplayBatch

__all__ = ["ReplayBench", "filled_replay"]

_WARM_UP = 5
_BETA = 0.5
_AT_ONCE = 10_000
_FRAMES_HELD = 400
_FRAME_UPDATES = 20
_COLUMNS = (
    Column("what", "what"),
    Column("median_ms", "median, ms", 3),
    Column("p95_ms", "95 of 100 below, ms", 3),
    Column("cpu_ms", "of them on the CPU, ms", 3),
    Column("per_second", "a second", 0),
)


class ReplayBench:
    """Prioritised replay."""

    help = (
        "sample and update priorities in a replay of 1,000,000 transitions; and a whole update of the network"
    )
    title = "Prioritised replay"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "--transitions",
            type=int,
            default=1_000_000,
            metavar="N",
            help="transitions held (default: 1000000, which take 2.6 GB)",
        )
        parser.add_argument(
            "--batch", type=int, default=128, metavar="N", help="transitions drawn (default: 128)"
        )
        parser.add_argument("--runs", type=int, default=2000, metavar="N", help="batches (default: 2000)")
        parser.add_argument(
            "--updates", type=int, default=100, metavar="N", help="whole updates (default: 100)"
        )

    def run(self, args: argparse.Namespace) -> BenchResult:
        """Measure, on one thread."""
        import torch

        from webgym.schema import Schema
        from webgym_learner.dqn import DQN, DQNConfig
        from webgym_learner.heap import keep_freed_memory
        from webgym_policy.network import PolicyNetwork

        check_counts(args, "transitions", "batch", "runs", "updates")
        # As the learner does.
        torch.set_num_threads(1)
        keep_freed_memory()
        torch.manual_seed(0)
        schema, rng = Schema(), np.random.default_rng(0)
        memory = filled_replay(schema, args.transitions)
        dqn = DQN(PolicyNetwork(schema, seed=0), DQNConfig(device="cpu"))
        drawn: list[ReplayBatch] = []
        errors = rng.random((64, args.batch)).astype(np.float32)

        def sample() -> None:
            drawn[:] = [memory.sample(args.batch, _BETA, rng)]

        def prioritise() -> None:
            (batch,) = drawn
            memory.update_priorities(batch.slots, batch.generations, errors[batch.slots[0] % len(errors)])

        def update() -> None:
            sample()
            (batch,) = drawn
            memory.update_priorities(batch.slots, batch.generations, dqn.update(batch).td_errors)

        both, drawing, setting = _timed(args.runs, sample, prioritise)
        (whole,) = _timed(args.updates, update)
        (seeing,) = _timed(min(args.updates, _FRAME_UPDATES), _update_with_frames(args.batch))
        rows = [
            _row("sample and update priorities", both),
            _row("of them: sample, with its observations", drawing),
            _row("of them: update priorities", setting),
            _row("a whole update of the network", whole),
            _row("a whole update of the network with frames", seeing),
        ]
        return BenchResult(
            figures={
                "batches_per_second": rows[0]["per_second"],
                "update_ms": rows[3]["median_ms"],
                "frame_update_ms": rows[4]["median_ms"],
                "batch_cpu_ms": rows[0]["cpu_ms"],
                "update_cpu_ms": rows[3]["cpu_ms"],
                "frame_update_cpu_ms": rows[4]["cpu_ms"],
                "transitions": float(len(memory)),
                "batch": float(args.batch),
            },
            runs=args.runs,
            rows=rows,
            columns=_COLUMNS,
            plotted="median_ms",
            notes=(
                f"{len(memory)} transitions over as many observations without frames ({memory.nbytes / 1e9:.1f} GB), "
                f"copies of those of a recorded episode, with random priorities; batches of {args.batch}. A sample has "
                "all observations of its transitions, those before and those after.",
                f"A whole update is sample, forward, backward, optimizer and priorities; {args.updates} of them. All "
                "on one thread. Rates are over the whole time, medians leave out what else the machine did.",
                f"With frames: the same of observations with 224x224 pixels, {_FRAMES_HELD} of them held.",
            ),
        )


def _update_with_frames(size: int) -> Callable[[], None]:
    """An update of the network that sees, on a replay of its own."""
    from webgym.schema import FRAME_SHAPE, Schema
    from webgym_learner.dqn import DQN, DQNConfig
    from webgym_policy.network import PolicyNetwork

    schema, rng = Schema(frame=FRAME_SHAPE), np.random.default_rng(0)
    memory = filled_replay(schema, _FRAMES_HELD)
    dqn = DQN(PolicyNetwork(schema, seed=0), DQNConfig(device="cpu"))

    def update() -> None:
        batch = memory.sample(size, _BETA, rng)
        memory.update_priorities(batch.slots, batch.generations, dqn.update(batch).td_errors)

    return update


def filled_replay(schema: Schema, transitions: int) -> PrioritizedReplay:
    """A replay full of copies of a recorded episode's transitions, with random priorities.

    Args:
        schema: of the episode, without frames or with them.
        transitions: how many it holds.
    """
    from webgym.benches.wire import recorded_episode
    from webgym_learner.replay import PrioritizedReplay

    probe = PrioritizedReplay(schema, 1 << 22)
    # A few more: rings are sized in whole transitions, and each brings an observation.
    memory = PrioritizedReplay(schema, (transitions + 64) * (probe.nbytes // probe.capacity + 1))
    _, episode = recorded_episode(frames=schema.frame is not None)
    rng = np.random.default_rng(1)
    at_once = min(_AT_ONCE, transitions)
    rows = np.arange(at_once) % episode.rows
    observations: dict[str, Any] = {name: array[rows] for name, array in episode.observations.items()}
    episode = replace(
        episode, action=np.resize(episode.action, at_once), reward=np.resize(episode.reward, at_once)
    )
    here = np.arange(at_once, dtype=np.int32)
    left = transitions
    while left > 0:
        count = min(at_once, left)
        memory.add(
            {name: array[:count] for name, array in observations.items()},
            here[:count],
            np.minimum(here[:count] + 1, count - 1),
            episode.action[:count],
            episode.reward[:count],
            np.full(count, 0.97, np.float32),
            rng.random(count, dtype=np.float32),
        )
        left -= count
    return memory


def _timed(runs: int, *steps: Callable[[], None]) -> list[tuple[list[float], list[float]]]:
    """Wall and CPU seconds of each run: of all steps together, and of each where there are several."""
    columns: list[tuple[list[float], list[float]]] = [([], []) for _ in range(len(steps) + 1)]
    for number in range(_WARM_UP + runs):
        clocks = [(time.perf_counter(), time.process_time())]
        for step in steps:
            step()
            clocks.append((time.perf_counter(), time.process_time()))
        if number < _WARM_UP:
            continue
        spans = [(clocks[0], clocks[-1]), *pairwise(clocks)]
        for (wall, cpu), (before, after) in zip(columns, spans, strict=True):
            wall.append(after[0] - before[0])
            cpu.append(after[1] - before[1])
    return columns if len(steps) > 1 else columns[:1]


def _row(what: str, times: tuple[list[float], list[float]]) -> dict[str, Any]:
    wall, cpu = (np.array(seconds) for seconds in times)
    return {
        "what": what,
        "median_ms": round(float(np.median(wall)) * 1e3, 4),
        "p95_ms": round(float(np.percentile(wall, 95)) * 1e3, 4),
        "cpu_ms": round(float(np.median(cpu)) * 1e3, 4),
        "per_second": round(len(wall) / float(wall.sum()), 1),
    }
