"""``webgym tasks``: what a manifest's ``task.name`` may be."""

from __future__ import annotations

import argparse
import json

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
        print(json.dumps(names) if args.json else "\n".join(names))
        return 0 if names else 1
