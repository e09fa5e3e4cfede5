"""``webgym queue``: what a run's queue holds while the run lasts; moves priorities, and requeues dead letters."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from webgym.errors import ExitCode, OutputError, UsageError

if TYPE_CHECKING:
    from webgym.queue import Entry, SyncTaskQueue

__all__ = ["QueueCommand", "Request", "parse_words"]

_ACTIONS = ("show", "move", "requeue")
_LIMIT = 20


class Request(NamedTuple):
    """What the words of the command line ask for."""

    action: str
    episode: str | None
    directory: Path | None


class QueueCommand:
    """Look into a run's queue."""

    name = "queue"
    help = "show the episodes of a running run: queued, leased by whom, dead and why; move them, or requeue the dead"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.usage = (
            "webgym queue [RUN_DIR] [--json] [--limit N]\n"
            "       webgym queue move EPISODE [RUN_DIR] --priority N [--json]\n"
            "       webgym queue requeue {EPISODE | --all} [RUN_DIR] [--json]\n"
            "       each with --redis-url URL --run UID in place of RUN_DIR"
        )
        parser.add_argument(
            "words",
            nargs="*",
            metavar="WORD",
            help="nothing to show the queue, or move or requeue; then the run's folder (default: the newest run "
            "under runs/)",
        )
        parser.add_argument(
            "--priority", type=float, metavar="N", help="with move: the new priority; higher is leased first"
        )
        parser.add_argument("--all", action="store_true", help="with requeue: all dead letters")
        parser.add_argument(
            "--limit",
            type=int,
            default=_LIMIT,
            metavar="N",
            help=f"list so many of each state (default: {_LIMIT})",
        )
        parser.add_argument(
            "--redis-url", metavar="URL", help="server of a run that was not begun by webgym run here"
        )
        parser.add_argument("--run", dest="run_uid", metavar="UID", help="with --redis-url: the run's uid")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        """Show or change the queue.

        Raises:
            UsageError: words or options that do not go together, or an episode that is not there.
            OutputError: no such run, or one that is over.
            BrokerError: the server does not answer.
        """
        request = parse_words(args.words, priority=args.priority, everything=args.all)
        if args.limit < 0:
            raise UsageError(f"--limit is {args.limit}: it must be at least 0")
        with _open_queue(request, args.redis_url, args.run_uid) as queue:
            if request.action == "move":
                assert request.episode is not None
                done = _move(queue, request.episode, args.priority)
            elif request.action == "requeue":
                done = _requeue(queue, request.episode)
            else:
                found = _contents(queue, args.limit)
                print(json.dumps(found, indent=2) if args.json else _table(found))
                return int(ExitCode.OK)
        print(json.dumps(done) if args.json else done["message"])
        return int(ExitCode.OK)


def parse_words(words: Sequence[str], *, priority: float | None, everything: bool) -> Request:
    """What is asked for.

    Args:
        words: of the command line, options left out.
        priority: of ``--priority``.
        everything: ``--all``.

    Raises:
        UsageError: naming what is missing or too much.
    """
    action, rest = (
        ("show", list(words)) if not words or words[0] not in _ACTIONS else (words[0], list(words[1:]))
    )
    if action == "show" and len(rest) > 1 and Path(rest[0]).name == rest[0] and not Path(rest[0]).is_dir():
        raise UsageError(f"webgym queue has no {rest[0]}; it has show, move and requeue")
    if priority is not None and action != "move":
        raise UsageError("--priority goes with move: webgym queue move EPISODE --priority N")
    if everything and action != "requeue":
        raise UsageError("--all goes with requeue: webgym queue requeue --all")
    episode = None
    if action == "move":
        if not rest or priority is None:
            raise UsageError("name an episode and its new priority: webgym queue move EPISODE --priority N")
        if not math.isfinite(priority):
            raise UsageError(f"--priority is {priority}: it must be a number")
        episode = rest.pop(0)
    elif action == "requeue" and not everything:
        if not rest:
            raise UsageError("name a dead episode, or all of them: webgym queue requeue EPISODE, or --all")
        episode = rest.pop(0)
    if len(rest) > 1:
        raise UsageError(f"webgym queue {action}: {rest[1]} is one word too many; RUN_DIR comes last")
    return Request(action, episode, Path(rest[0]) if rest else None)


@contextlib.contextmanager
def _open_queue(request: Request, url: str | None, uid: str | None) -> Iterator[SyncTaskQueue]:
    from dataclasses import replace

    from webgym.broker import BrokerConfig, check, connect
    from webgym.errors import BrokerError
    from webgym.keys import Keys
    from webgym.queue import SyncTaskQueue
    from webgym.run.whereabouts import find_run, over

    path = request.directory
    if (url is None) != (uid is None) or (url is not None and path is not None):
        raise UsageError("give a run's folder, or --redis-url URL together with --run UID")
    if url is not None and uid is not None:
        config = BrokerConfig(url)
    else:
        path = path or _newest()
        config, uid = find_run(path)
    try:
        check(config)
    except BrokerError:
        if path is not None and config.url.startswith("unix:"):
            raise over(path) from None  # Its own server, which ends with it.
        raise
    with contextlib.closing(connect(replace(config, patience=0.0))) as client:
        yield SyncTaskQueue(client, Keys(uid))


def _newest(root: Path = Path("runs")) -> Path:
    found = [file.parent for file in root.glob("*/run.yaml")]
    if not found:
        raise OutputError(f"there is no run under {root}/: name the run's folder, or --redis-url and --run")
    return max(found, key=lambda folder: (folder / "run.yaml").stat().st_mtime)


def _move(queue: SyncTaskQueue, episode: str, priority: float) -> dict[str, Any]:
    state = queue.move([episode], priority)[episode]
    if state is None:
        raise UsageError(
            f"episode {episode} is neither queued nor leased nor dead; webgym queue lists those that are"
        )
    when = {"queued": "now", "leased": "should it be queued again", "dead": "once it is requeued"}[state]
    message = f"{episode} is {state}; its priority is {priority:g} {when}"
    return {"episode": episode, "state": state, "priority": priority, "message": message}


def _requeue(queue: SyncTaskQueue, episode: str | None) -> dict[str, Any]:
    count = queue.requeue_dead(None if episode is None else [episode])
    if episode is not None and not count:
        raise UsageError(f"episode {episode} is not dead; webgym queue lists those that are")
    what = episode or f"{count} dead episode{'' if count == 1 else 's'}"
    verb = "are" if episode is None and count != 1 else "is"
    return {"requeued": count, "message": f"{what} {verb} queued again, the failures forgotten"}


def _contents(queue: SyncTaskQueue, limit: int) -> dict[str, Any]:
    from dataclasses import asdict

    from webgym.protocol import PURPOSES
    from webgym.queue import ENTRY_STATES

    purposes = {purpose: asdict(queue.counts(purpose)) for purpose in PURPOSES}
    return {
        "uid": queue.keys.uid,
        "counts": asdict(queue.counts()),
        "purposes": {name: counts for name, counts in purposes.items() if any(counts.values())},
        **{state: [_row(entry) for entry in queue.entries(state, limit)] for state in ENTRY_STATES},
    }


def _row(entry: Entry) -> dict[str, Any]:
    task = entry.task
    row: dict[str, Any] = {
        "episode": entry.episode,
        "task": task.task if task else None,
        "purpose": task.purpose if task else None,
        "priority": entry.priority,
        "attempt": entry.attempt,
    }
    if entry.state == "leased":
        row |= {
            "worker": entry.worker,
            "held_seconds": round(entry.held_seconds, 3),
            "left_seconds": round(entry.left_seconds, 3),
        }
    if entry.state == "dead":
        row["dead_seconds"] = round(entry.held_seconds, 3)
    row["reasons"] = [reason._asdict() for reason in entry.reasons]
    return row


def _table(found: dict[str, Any]) -> str:
    counts = found["counts"]
    lines = [f"run {found['uid']}: " + ", ".join(f"{counts[state]} {state}" for state in counts)]
    lines += [
        f"  {purpose}: " + ", ".join(f"{of[state]} {state}" for state in of if of[state])
        for purpose, of in found["purposes"].items()
    ]
    for state in ("leased", "queued", "dead"):
        rows = found[state]
        if not rows:
            continue
        more = counts[state] - len(rows)
        lines += ["", f"{state}{f' (the first {len(rows)}; {more} more: --limit)' if more > 0 else ''}"]
        lines += [line for row in rows for line in _lines(state, row)]
    return "\n".join(lines)


def _lines(state: str, row: dict[str, Any]) -> Iterator[str]:
    what = f"{row['task']} ({row['purpose']})" if row["task"] else "a task that cannot be read"
    line = f"  {row['episode']}  {what}  priority {row['priority']:g}"
    if row["attempt"]:
        line += f"  attempt {row['attempt']}"
    if state == "leased":
        line += (
            f"  by {row['worker']} for {row['held_seconds']:.1f} s, runs out in {row['left_seconds']:.1f} s"
        )
    elif state == "dead":
        line += f"  dead for {row['dead_seconds']:.1f} s"
    yield line
    for reason in row["reasons"]:
        who, why = reason["worker"] or "?", f"{reason['reason']} ({reason['fault_class']})"
        yield f"    attempt {reason['attempt']} on {who}: {why}"
