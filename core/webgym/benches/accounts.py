"""What became of every episode of a run: the learner's ledger against what the server's queue says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import redis

    from webgym.keys import Keys

__all__ = ["Account", "QueueBooks", "read_books", "reconcile"]


@dataclass(frozen=True)
class QueueBooks:
    """What the queue knew when the run was over. Episodes by their ids."""

    done: frozenset[str]
    dead: frozenset[str]
    open: frozenset[str]
    """Queued or leased."""
    waiting: frozenset[str]
    """Results that nobody has taken off the stream yet."""
    counters: Mapping[str, float] = field(default_factory=dict)
    """``<purpose>_episodes``: how many of a purpose were completed, raised by the script that completes."""
    cursors: Mapping[str, int] = field(default_factory=dict)
    """By purpose: how many the learners have dealt."""


@dataclass(frozen=True)
class Account:
    """The two sides compared."""

    episodes: int
    """In the ledger."""
    lost: tuple[str, ...]
    """The queue took their results, and they are neither in the ledger nor on their way to it."""
    doubled: tuple[str, ...]
    """More than once in the ledger."""
    unknown: tuple[str, ...]
    """In the ledger, and the queue has never seen them end."""
    miscounted: float
    """By how much the queue's counters differ from the episodes it saw completed, over all purposes."""
    never_played: int
    """Training episodes that were dealt and are nowhere: what is cancelled when training ends, and what a learner was
    killed over between writing down how far it dealt and queueing it."""

    @property
    def sound(self) -> bool:
        """Whether every episode counted, and counted once."""
        return not (self.lost or self.doubled or self.unknown or self.miscounted)


def reconcile(ledger: Iterable[Mapping[str, Any]], books: QueueBooks) -> Account:
    """Compare the lines of ``episodes.jsonl`` with the queue's books."""
    lines = Counter(str(line.get("episode")) for line in ledger)
    written, ended = set(lines), books.done | books.dead
    # Ids are <purpose>-<index> or <purpose>-<label>-<index>.
    completed = Counter(episode.partition("-")[0] for episode in books.done)
    told = {
        name.removesuffix("_episodes"): n for name, n in books.counters.items() if name.endswith("_episodes")
    }
    train = {f"train-{index:08d}" for index in range(books.cursors.get("train", 0))}
    return Account(
        episodes=len(lines),
        lost=tuple(sorted(ended - written - books.waiting)),
        doubled=tuple(sorted(episode for episode, count in lines.items() if count > 1)),
        unknown=tuple(sorted(written - ended)),
        miscounted=sum(abs(told.get(name, 0.0) - completed[name]) for name in {*told, *completed}),
        never_played=len(train - written - ended - books.open),
    )


def read_books(client: redis.Redis, keys: Keys) -> QueueBooks:
    """The queue's books, from a server that still has them; a client of bytes."""
    server: Any = client
    by_name = {key.rpartition(":")[2]: key for key in keys.queue}
    done = _names(server.zrange(by_name["done"], 0, -1))
    dead = _names(server.zrange(by_name["dead"], 0, -1))
    cursors = json.loads(server.hget(keys.control, "cursors") or b"{}")
    return QueueBooks(
        done=done,
        dead=dead,
        open=_names(server.hkeys(by_name["tasks"])) - dead,
        waiting=_names(fields.get(b"episode", b"") for _, fields in server.xrange(keys.results)),
        counters={k.decode(): float(v) for k, v in server.hgetall(keys.counters).items()},
        cursors={str(k): int(v) for k, v in cursors.items()},
    )


def _names(found: Iterable[bytes]) -> frozenset[str]:
    return frozenset(name.decode() for name in found)
