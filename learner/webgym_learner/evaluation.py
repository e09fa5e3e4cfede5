"""The verdict on a set of weights: greedy episodes on seeds of the evaluation range, and the untrained baseline."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from webgym.protocol import EpisodeSummary, EpisodeTask
from webgym_learner.renewal import Renewal
from webgym_learner.window import wilson_interval

if TYPE_CHECKING:
    from pathlib import Path

    from webgym_learner.inbox import Inbox

__all__ = ["Evaluation", "Tally", "by_task", "save_film"]

logger = logging.getLogger(__name__)


@dataclass
class Tally:
    """Results of one group of episodes."""

    summaries: list[EpisodeSummary] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        """Success with its Wilson 95% interval, and means over the episodes; JSON-able."""
        played = [s for s in self.summaries if s.outcome != "fault"]
        successes = sum(s.success for s in self.summaries)
        count = len(self.summaries)
        low, high = wilson_interval(successes, count)
        return {
            "success": successes / count if count else None,
            "successes": successes,
            "episodes": count,
            "interval": [round(low, 4), round(high, 4)],
            "faults": count - len(played),
            "steps_per_episode": sum(s.steps for s in played) / len(played) if played else None,
            "reward": sum(s.reward for s in played) / len(played) if played else None,
            "seconds_per_episode": sum(s.seconds for s in played) / len(played) if played else None,
        }


class Evaluation:
    """Plays dealt episodes to their end and sums them up.

    Args:
        inbox: where episodes go and results come from.
        progress: called about once a second with the numbers so far.
        others: called with each result that is none of these episodes: they were under way when training ended.
    """

    def __init__(
        self,
        inbox: Inbox,
        progress: Callable[[dict[str, Any]], None],
        others: Callable[[EpisodeSummary], None] | None = None,
    ) -> None:
        self._inbox = inbox
        self._progress = progress
        self._others = others

    def run(
        self, groups: Mapping[str, Sequence[EpisodeTask]], seconds: float, drained: Callable[[], bool]
    ) -> tuple[dict[str, Tally], bool]:
        """Play groups of episodes together.

        Args:
            groups: name to episodes.
            seconds: longest time; what has finished by then counts.
            drained: true once the program is asked to stop.

        Returns:
            A tally for each group, and whether all episodes finished.

        Raises:
            BrokerError: Redis is gone.
        """
        owner = {task.episode: name for name, tasks in groups.items() for task in tasks}
        tallies = {name: Tally() for name in groups}
        # Task by task over all groups: a browser that goes on to another opens another page.
        everything = sorted((t for tasks in groups.values() for t in tasks), key=lambda t: t.task)
        self._inbox.add(everything)
        total = len(owner)
        deadline = time.monotonic() + seconds
        next_report = 0.0
        renewal = Renewal(self._inbox, everything)
        while owner and not drained():
            now = time.monotonic()
            if now >= deadline:
                logger.warning(
                    "%d of %d evaluation episodes did not finish in %g s", len(owner), total, seconds
                )
                break
            self._inbox.check()
            renewal.look(owner)
            self._inbox.experience(block_ms=20)  # what was on its way when training ended
            for summary in self._inbox.results():
                name = owner.pop(summary.episode, None)
                if name is not None:
                    tallies[name].summaries.append(summary)
                elif self._others is not None:
                    self._others(summary)
            if now >= next_report:
                next_report = now + 1.0
                done = {n: t.report() for n, t in tallies.items()}
                self._progress({"evaluated": total - len(owner), "evaluating": total, "evaluation": done})
        return tallies, not owner


def by_task(tally: Tally) -> dict[str, dict[str, Any]]:
    """A tally's report for each task on its own."""
    names = sorted({s.task for s in tally.summaries})
    return {name: Tally([s for s in tally.summaries if s.task == name]).report() for name in names}


def save_film(inbox: Inbox, episodes: Sequence[str], folder: Path) -> bool:
    """Write the first film there is among the episodes into ``folder``: numbered PNG files and ``film.json``."""
    for episode in episodes:
        film = inbox.film(episode)
        if not film or b"meta" not in film:
            continue
        try:
            meta = json.loads(film[b"meta"])
            frames = [film[f"frame-{index}".encode()] for index in range(int(meta["frames"]))]
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            logger.warning("the film of %s cannot be read: %s", episode, error)
            continue
        folder.mkdir(parents=True, exist_ok=True)
        for index, frame in enumerate(frames):
            (folder / f"{index:03d}.png").write_bytes(frame)
        (folder / "film.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
        return True
    return False
