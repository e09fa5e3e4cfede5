"""What a run leaves behind while it trains: the ledger of episodes, metrics, TensorBoard scalars, live progress."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym.broker import broker_errors, client_where
from webgym.protocol import EpisodeSummary
from webgym.run.totals import EpisodeTotals
from webgym.rundir import JsonLinesWriter, last_json_line
from webgym.telemetry import Numbers

if TYPE_CHECKING:
    from redis import Redis
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["TASK_FIGURES", "EpisodeLedger", "MetricsRecorder"]

logger = logging.getLogger(__name__)

_LOG_SECONDS = 30.0
"""How often the headline figures go to the log, which is all that ``kubectl logs`` shows."""
_LOG_FIGURES = ("steps", "steps_per_second", "updates", "episodes", "success", "success_train", "loss")
TASK_FIGURES = ("task_success", "task_share")
"""Figures that are told for each task of several: success while training, and share of the practice."""


class EpisodeLedger:
    """``episodes.jsonl``: one line for each episode that counted, each episode once.

    The file itself is what makes an episode count once: a result is written before it is taken off the stream, and one
    that the file holds already (the learner died in between) is not written again.

    Args:
        path: the file; lines of an earlier incarnation are read.
    """

    def __init__(self, path: Path) -> None:
        self._seen: set[str] = set()
        self.next_index: dict[str, int] = {}
        """By purpose: the first episode index that no line names yet."""
        self.totals = EpisodeTotals()
        """Of all lines, those of earlier incarnations as well."""
        # The writer first: it drops a last line that a crash left unfinished, whose episode must count as not written.
        self._writer = JsonLinesWriter(path)
        self._load(path)

    def _load(self, path: Path) -> None:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    entry = json.loads(line)
                    episode, purpose = str(entry["episode"]), str(entry["purpose"])
                    steps, outcome = int(entry.get("steps") or 0), str(entry.get("outcome") or "")
                except (ValueError, KeyError, TypeError, AttributeError):
                    continue  # damaged: its episode is written again should it come again
                if episode not in self._seen:
                    self._remember(episode, purpose, steps, outcome)

    def _remember(self, episode: str, purpose: str, steps: int, outcome: str) -> None:
        self._seen.add(episode)
        self.totals.add(purpose, steps, outcome)
        tail = episode.rpartition("-")[2]
        if tail.isdecimal():
            self.next_index[purpose] = max(self.next_index.get(purpose, 0), int(tail) + 1)

    def __len__(self) -> int:
        """Episodes counted so far."""
        return len(self._seen)

    def add(self, summaries: list[EpisodeSummary]) -> list[EpisodeSummary]:
        """Write down what is new, in one append; returns it."""
        fresh = []
        for summary in summaries:
            if summary.episode not in self._seen:
                self._remember(summary.episode, summary.purpose, summary.steps, summary.outcome)
                fresh.append(summary)
        if fresh:
            now = round(time.time(), 3)
            self._writer.write_many([{"time": now, **asdict(s)} for s in fresh])
        return fresh

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class MetricsRecorder:
    """``metrics.jsonl``, TensorBoard, the progress hash and now and then the log, from one dictionary of numbers.

    Args:
        out: the run directory.
        client: the run's Redis.
        progress_key: hash for the live view.
        numbers: what ``/metrics`` shows.
    """

    def __init__(self, out: Path, client: Redis, progress_key: str, numbers: Numbers) -> None:
        self._numbers = numbers
        self._writer = JsonLinesWriter(out / "metrics.jsonl")
        self.earlier: Mapping[str, Any] = last_json_line(self._writer.path) or {}
        """The last line of an earlier incarnation; empty where there was none."""
        self._board_folder = out / "tensorboard"
        self._board: SummaryWriter | None = None
        self._client = client
        self._key = progress_key
        self._next_log = time.monotonic() + _LOG_SECONDS

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Store one line; ``steps`` is the x-axis of TensorBoard.

        Raises:
            BrokerError: Redis is gone; the line is in the file.
        """
        self._writer.write(metrics)
        self._log(metrics)
        by_task = _figures_by_task(metrics)
        self._numbers.set({**metrics, **by_task})
        self.progress(metrics)
        if self._board is None:
            # Imported late: it takes a second that the first gradient step need not wait for.
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(self._board_folder))
        step = int(metrics.get("steps") or 0)
        for name, value in metrics.items():
            if (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and name not in ("time", "steps")
            ):
                self._board.add_scalar(name, value, step)
        for name, values in by_task.items():
            for task, value in values.items():
                self._board.add_scalar(f"{name}/{task}", value, step)

    def _log(self, metrics: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if now < self._next_log:
            return
        self._next_log = now + _LOG_SECONDS
        known = {name: metrics[name] for name in _LOG_FIGURES if metrics.get(name) is not None}
        logger.info(
            "%s",
            ", ".join(
                f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in known.items()
            ),
        )

    def progress(self, numbers: Mapping[str, Any]) -> None:
        """Update the live view only.

        Raises:
            BrokerError: Redis is gone.
        """
        mapping = {name: json.dumps(value) for name, value in numbers.items()}
        with broker_errors(client_where(self._client)):
            self._client.hset(self._key, mapping=mapping)  # type: ignore[arg-type]

    def close(self) -> None:
        """Flush and close everything."""
        self._writer.close()
        if self._board is not None:
            self._board.close()


def _figures_by_task(metrics: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """From :meth:`webgym_learner.curriculum.Curriculum.success`; what is not known is left out."""
    tasks = metrics.get("tasks") or {}
    return {
        name: {t: float(v) for t, of in tasks.items() if (v := of[name.removeprefix("task_")]) is not None}
        for name in TASK_FIGURES
    }
