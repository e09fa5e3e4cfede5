"""Writes the table of values in the chart's README, from the comments in values.yaml; `--check` compares instead."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

CHART = Path(__file__).parents[1] / "charts" / "webgym"
README = CHART / "README.md"
BEGIN, END = "<!-- values: made by tools/chart_readme.py -->", "<!-- end of values -->"


def rows() -> Iterator[tuple[str, str, str]]:
    """Key, default and description of each value that a `# -- ` comment describes."""
    values = YAML(typ="safe").load(CHART / "values.yaml")
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in (CHART / "values.yaml").read_text().splitlines():
        text = line.strip()
        if text.startswith("# -- "):
            comment = [text.removeprefix("# -- ")]
        elif text.startswith("# ") and comment:
            comment.append(text.removeprefix("# "))
        elif ":" in text and not text.startswith(("-", "#")):
            indent, key = len(line) - len(line.lstrip()), text.partition(":")[0]
            path = [(i, k) for i, k in path if i < indent] + [(indent, key)]
            if comment:
                names = [k for _, k in path]
                yield ".".join(names), _shown(values, names), " ".join(comment)
            comment = []


def _shown(values: Any, names: list[str]) -> str:
    for name in names:
        values = values[name]
    return json.dumps(values)


def table() -> str:
    """The table as Markdown."""
    lines = ["| value | default | meaning |", "|---|---|---|"]
    lines += [f"| `{key}` | `{default}` | {text.replace('|', '/')} |" for key, default, text in rows()]
    return "\n".join(lines)


def rendered(text: str) -> str:
    """The README with the present table in it."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> int:
    """Write, or compare."""
    text = README.read_text()
    new = rendered(text)
    if "--check" in sys.argv:
        if text != new:
            print(
                f"{README} is not what values.yaml gives; run python tools/chart_readme.py", file=sys.stderr
            )
        return int(text != new)
    README.write_text(new)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
