"""``webgym bench``: measure a part and show the result as a table and a plot, or as one JSON object."""

from __future__ import annotations

import argparse
import json
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from webgym.errors import ExitCode, OutputError
from webgym.printable import printable

if TYPE_CHECKING:
    from webgym.bench import Bench, BenchResult

__all__ = ["BenchCommand"]

_OUT = Path("bench/out")


class BenchCommand:
    """Run one benchmark."""

    name = "bench"
    help = "measure one thing, such as frames: prints a table, and leaves it with a plot in a folder"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add a subcommand for each benchmark that an installed part brings."""
        benches = parser.add_subparsers(dest="bench", metavar="NAME", title="benchmarks", required=True)
        for entry in sorted(_find_benches(), key=lambda entry: entry.name):
            try:
                bench = cast("type[Bench]", entry.load())()
            except ModuleNotFoundError as error:
                benches.add_parser(entry.name, help=f"(not installed: needs {error.name})", add_help=False)
                continue
            sub = benches.add_parser(entry.name, help=bench.help, description=bench.help)
            sub.add_argument(
                "--json", action="store_true", help="print one JSON object, and nothing else, on stdout"
            )
            sub.add_argument(
                "--out",
                type=Path,
                default=_OUT,
                metavar="DIR",
                help=f"folder for NAME.md, NAME.svg and NAME.json (default: {_OUT})",
            )
            bench.configure(sub)
            sub.set_defaults(_bench=bench)

    def run(self, args: argparse.Namespace) -> int:
        """Measure, show and keep."""
        from webgym.bench.chart import bar_chart
        from webgym.run.summary import machine_facts

        bench: Bench = args._bench
        _make_folder(args.out)
        result = bench.run(args)
        facts = machine_facts()
        found = {
            "bench": args.bench,
            **result.figures,
            "runs": result.runs,
            "machine": facts,
            "rows": list(result.rows),
            "notes": list(result.notes),
        }
        text = json.dumps(found, indent=2)
        table = _table(result)
        plotted = next(column for column in result.columns if column.key == result.plotted)
        label = result.columns[0].key
        bars = [(str(row[label]), float(row[result.plotted])) for row in result.rows]
        where = f"{facts['processor']}, {facts['cores']} cores"
        page = "\n\n".join(
            [f"# {bench.title}", "\n".join(table), f"{result.runs} runs on {where}.", *result.notes]
        )
        try:
            _write(args.out / f"{args.bench}.json", text + "\n")
            _write(args.out / f"{args.bench}.md", page + "\n")
            _write(args.out / f"{args.bench}.svg", bar_chart(bench.title, f"{plotted.title}; {where}", bars))
            for name, picture in result.pictures.items():
                _write(args.out / name, picture)
        finally:
            # What took minutes to measure is shown even where it cannot be kept.
            print(text if args.json else page)
        if not args.json:
            print("\n" + printable(f"Table and plot: {args.out / args.bench}.md, .svg"))
            for name in result.pictures:
                print(printable(f"Plot: {args.out / name}"))
        return int(ExitCode.OK)


def _find_benches() -> list[EntryPoint]:
    from webgym.bench import BENCH_GROUP

    return list(entry_points(group=BENCH_GROUP))


def _table(result: BenchResult) -> list[str]:
    """A Markdown table, aligned so that it reads well as it is."""
    cells = [[column.title for column in result.columns]]
    cells += [[_cell(row.get(column.key), column.digits) for column in result.columns] for row in result.rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(result.columns))]
    lines = [
        "| "
        + " | ".join(
            text.ljust(width) if index == 0 else text.rjust(width)
            for index, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in cells
    ]
    rule = (
        "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    )
    return [lines[0], rule, *lines[1:]]


def _cell(value: Any, digits: int) -> str:
    if value is None:
        return "–"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make {folder}: {error.strerror}; name another with --out") from error


def _write(path: Path, content: str | bytes) -> None:
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}; name another folder with --out") from error
