"""``webgym crds``: writes what is made from the models of the run: the CustomResourceDefinition and its reference."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from webgym.errors import ExitCode, OutputError
from webgym.printable import printable

__all__ = ["CrdsCommand"]

CRD_FILE = Path("crds/webgymruns.webgym.io.yaml")
REFERENCE_FILE = Path("docs/reference/spec.md")
CHART_FILES = {
    cel: Path(f"charts/webgym/files/crd{'' if cel else '-without-cel'}.yaml") for cel in (True, False)
}
"""What the chart installs: with the rules that span fields, and without them for servers older than 1.25."""


class CrdsCommand:
    """Write or check the generated files."""

    name = "crds"
    help = "write the CustomResourceDefinition and the reference of the spec, or check that they are current"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "--root",
            type=Path,
            default=Path(),
            metavar="DIR",
            help=f"checkout to write {CRD_FILE} and {REFERENCE_FILE} into (default: the current folder)",
        )
        parser.add_argument(
            "--stdout",
            action="store_true",
            help="print the CustomResourceDefinition instead, as in: webgym crds --stdout | kubectl apply -f -",
        )
        parser.add_argument(
            "--no-cel",
            action="store_true",
            help="leave out rules that span fields, for API servers older than 1.25; implies --stdout",
        )
        parser.add_argument(
            "--check",
            action="store_true",
            help="write nothing; exit code 1 when a file is not what the models give",
        )

    def run(self, args: argparse.Namespace) -> int:
        """Write, print or compare."""
        from webgym.crd import render_crd
        from webgym.reference import render_reference

        if args.stdout or args.no_cel:
            sys.stdout.write(render_crd(cel=not args.no_cel))
            return int(ExitCode.OK)
        current = True
        for name, text in (
            (CRD_FILE, render_crd()),
            (REFERENCE_FILE, render_reference()),
            *((file, render_crd(cel=cel)) for cel, file in CHART_FILES.items()),
        ):
            path = args.root / name
            if _read(path) == text:
                continue
            current = False
            if args.check:
                print(printable(f"{path} is not what the models give; run `webgym crds`"), file=sys.stderr)
            else:
                _write(path, text)
                print(printable(f"wrote {path}"))
        if args.check and not current:
            return int(ExitCode.FAILURE)
        if current:
            print("the CustomResourceDefinition, its copies in the chart and the reference are current")
        return int(ExitCode.OK)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _write(path: Path, text: str) -> None:
    from webgym.rundir import write_atomic

    try:
        write_atomic(path, text)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error
