"""``webgym tasks``: what a manifest's ``task.name`` may be."""

from __future__ import annotations

import argparse
import json
import sys

__all__ = ["TasksCommand"]


class TasksCommand:
    """List the tasks by name."""

    name = "tasks"
    help = "list the tasks a manifest can name"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("pattern", nargs="?", default="", help="only names that contain this")
        parser.add_argument("--json", action="store_true", help="one JSON list on stdout")

    def run(self, args: argparse.Namespace) -> int:
        """Print the names; exit 1 when none matches."""
        from webgym_workers.tasks.registry import task_names

        names = [n for n in task_names() if args.pattern in n]
        if args.json or names:
            print(json.dumps(names) if args.json else "\n".join(names))
        if not names:
            print(f"webgym: no task's name contains {args.pattern!r}", file=sys.stderr)
        return 0 if names else 1
