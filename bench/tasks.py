"""Train every task of the list with several seeds and write the table of docs/results.md. Resumable.

Each run is one `webgym run` of examples/miniwob-click-button.yaml with another task, seed and limit; nothing else
differs.
A run whose summary is there already is not run again, so the script can be stopped and started at will.

    python bench/tasks.py                       # all of it, about an hour and a half on two cores
    python bench/tasks.py --only click-link --seeds 0
    python bench/tasks.py --table               # the table again, from what is there
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from webgym_learner.window import wilson_interval

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = ROOT / "examples" / "miniwob-click-button.yaml"
RESULTS = ROOT / "bench" / "results" / "tasks.json"
TABLE = ROOT / "docs" / "results.md"

SHORT = (
    "click-button", "click-test", "click-test-2", "click-link", "click-dialog", "click-dialog-2", "click-widget",
    "click-option", "click-checkboxes", "enter-text",
)  # fmt: skip
"""Must reach 0.98 within three minutes of training each."""

LONG = (
    "login-user", "enter-password", "click-checkboxes-transfer", "click-button-sequence", "click-collapsible",
    "choose-list", "navigate-tree", "click-tab-2-easy", "enter-text-dynamic",
)  # fmt: skip
"""Several steps each; must reach 0.95 within five minutes."""

CONTROL = ("click-button",)
"""Also trained once without features that match nodes with the instruction's words."""

LIMITS = {**dict.fromkeys(SHORT, 170), **dict.fromkeys(LONG, 290)}
TARGETS = {**dict.fromkeys(SHORT, 0.99), **dict.fromkeys(LONG, 0.98)}


def run(task: str, seed: int, match: bool, folder: Path) -> dict[str, Any] | None:
    """One run's summary; from an earlier call when there is one."""
    summary = folder / "summary.json"
    if summary.exists() and json.loads(summary.read_text()).get("evaluation"):
        return json.loads(summary.read_text())
    shutil.rmtree(folder, ignore_errors=True)
    command = [
        sys.executable, "-m", "webgym", "run", str(MANIFEST), "--out", str(folder), "--json", "--quiet",
        "--set", f"task.name=miniwob.{task}", "--set", f"seed={seed}", "--set", f"stop.seconds={LIMITS[task]}",
        "--set", f"stop.success={TARGETS[task]}", "--set", f"observation.match={str(match).lower()}",
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        print(f"{task} seed {seed}: exit {done.returncode}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def row(task: str, seed: int, match: bool, summary: dict[str, Any]) -> dict[str, Any]:
    """What the table needs of a run."""
    evaluation = summary["evaluation"]
    return {
        "task": task,
        "seed": seed,
        "match": match,
        "limit_seconds": LIMITS[task],
        "successes": evaluation["successes"],
        "episodes": evaluation["episodes"],
        "steps_per_episode": evaluation["steps_per_episode"],
        "baseline_successes": (evaluation["baseline"] or {}).get("successes"),
        "baseline_episodes": (evaluation["baseline"] or {}).get("episodes"),
        "steps": summary["steps"],
        "steps_per_second": summary["steps_per_second"],
        "updates": summary["updates"],
        "training_seconds": summary["training_seconds"],
        "seconds": summary["seconds"],
        "stop_reason": summary["stop_reason"],
        "peak_memory_bytes": summary["peak_memory_bytes"],
    }


def table(rows: list[dict[str, Any]], match: bool) -> str:
    """The rows with or without matching features as Markdown, one line for each task over its seeds."""
    lines = [
        "| task | limit, s | success | 95% interval | by seed | untrained | steps per episode | training, s "
        "| environment steps | updates | whole command, s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for task in LIMITS:
        own = sorted((r for r in rows if r["task"] == task and r["match"] == match), key=lambda r: r["seed"])
        if not own:
            continue
        successes, episodes = sum(r["successes"] for r in own), sum(r["episodes"] for r in own)
        low, high = wilson_interval(successes, episodes)
        untrained = [r for r in own if r["baseline_episodes"]]
        chance = sum(r["baseline_successes"] for r in untrained) / sum(
            r["baseline_episodes"] for r in untrained
        )

        def each(name: str, digits: int = 0, own: list[dict[str, Any]] = own) -> str:
            return " / ".join(f"{r[name]:.{digits}f}" for r in own)

        by_seed = " / ".join(f"{r['successes'] / r['episodes']:.3f}" for r in own)
        lines.append(
            f"| {task} | {own[0]['limit_seconds']} | {successes / episodes:.3f} | {low:.3f}–{high:.3f} | {by_seed} "
            f"| {chance:.2f} | {each('steps_per_episode', 1)} | {each('training_seconds')} | {each('steps')} "
            f"| {each('updates')} | {each('seconds')} |"
        )
    return "\n".join(lines)


def write(rows: list[dict[str, Any]]) -> None:
    """Store the rows, and put the tables between the markers of docs/results.md."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    machine = {"cores": os.cpu_count(), "processor": platform.processor() or platform.machine(),
               "python": platform.python_version()}  # fmt: skip
    RESULTS.write_text(json.dumps({"machine": machine, "runs": rows}, indent=1) + "\n")
    if not TABLE.exists():
        return
    text = TABLE.read_text()
    for match, name in ((True, "tasks"), (False, "control")):
        begin, end = f"<!-- table: {name} -->", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}\n\n{table(rows, match)}\n\n{end}{tail}"
    TABLE.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=list(LIMITS), choices=list(LIMITS), metavar="TASK")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "out" / "tasks")
    parser.add_argument("--table", action="store_true", help="only write the table, from what is there")
    args = parser.parse_args()
    if args.table:
        write(json.loads(RESULTS.read_text())["runs"])
        return 0
    rows: dict[tuple[str, int, bool], dict[str, Any]] = {}
    if RESULTS.exists():
        rows = {(r["task"], r["seed"], r["match"]): r for r in json.loads(RESULTS.read_text())["runs"]}
    failed = 0
    # Seed by seed, so that an interrupted table has every task before it has every seed.
    todo = [(task, seed, True) for seed in args.seeds for task in args.only]
    todo += [(task, args.seeds[0], False) for task in CONTROL if task in args.only]
    for task, seed, match in todo:
        name = f"{task}-{seed}" if match else f"{task}-{seed}-control"
        summary = run(task, seed, match, args.out / name)
        if summary is None:
            failed += 1
            continue
        found = rows[task, seed, match] = row(task, seed, match, summary)
        took = f"{found['training_seconds']:.0f} s training, {found['seconds']:.0f} s in all"
        print(f"{name:36} {found['successes']}/{found['episodes']}  {took}", flush=True)
        write(list(rows.values()))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
