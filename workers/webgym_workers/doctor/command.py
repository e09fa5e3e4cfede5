"""``webgym doctor``: checks this machine, and says how to mend what is wrong with it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from webgym.commands.arguments import add_overrides
from webgym.errors import ExitCode

if TYPE_CHECKING:
    from webgym_workers.doctor.examination import Progress
    from webgym_workers.doctor.finding import CheckResult
    from webgym_workers.doctor.setting import Setting, Wanted

__all__ = ["DoctorCommand"]


class DoctorCommand:
    """Check the machine."""

    name = "doctor"
    help = "check this machine: browser, display, fonts, clicks, limits; says how to mend what is wrong"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "file",
            nargs="?",
            metavar="FILE",
            help="manifest whose browser, workers, redis and learner to check for; by default their defaults",
        )
        add_overrides(parser, "change a field of the manifest first; may be repeated")
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object on stdout, nothing else"
        )

    def run(self, args: argparse.Namespace) -> int:
        """Examine and print; exit code 1 when something failed.

        Raises:
            ManifestError: the manifest is wrong.
            UsageError: ``--set`` without a manifest.
        """
        import asyncio
        import time

        from rich.console import Console

        from webgym.run.summary import machine_facts
        from webgym_workers.doctor.report import page, summary_object
        from webgym_workers.doctor.setting import Setting

        setting = Setting(_wanted(args.file, args.overrides))
        console = Console(highlight=False, soft_wrap=False)
        start = time.monotonic()
        if console.is_terminal and not args.json:
            with console.status("looking around") as status:
                results = asyncio.run(
                    _examine(setting, lambda names: status.update(f"checking {', '.join(names)}"))
                )
        else:
            results = asyncio.run(_examine(setting))
        seconds = time.monotonic() - start
        found = summary_object(results, machine_facts(), setting.browsers, seconds)
        if args.json:
            print(json.dumps(found, indent=2))
        else:
            with console.capture() as capture:
                console.print(page(results, found["machine"], setting.machine, setting.browsers, seconds))
            text = capture.get()
            # In a file nobody wants the blanks that fill the lines of a table.
            lines = text.splitlines() if console.is_terminal else map(str.rstrip, text.splitlines())
            print("\n".join(lines))
        return int(ExitCode.OK if found["ok"] else ExitCode.FAILURE)


async def _examine(setting: Setting, progress: Progress = lambda names: None) -> Sequence[CheckResult]:
    from webgym_workers.doctor.browsers import ending_the_browser
    from webgym_workers.doctor.checks import CHECKS
    from webgym_workers.doctor.examination import examine

    async with ending_the_browser(setting):
        return await examine(CHECKS, setting, progress)


def _wanted(file: str | None, overrides: Sequence[str]) -> Wanted:
    from webgym.errors import UsageError
    from webgym.manifest import load_manifest
    from webgym_workers.doctor.setting import Wanted

    if file is None:
        if overrides:
            raise UsageError("--set changes a manifest: name its file")
        return Wanted()
    return Wanted.by(load_manifest(file, overrides))
