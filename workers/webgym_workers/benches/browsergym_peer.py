"""Plays MiniWoB click-test through BrowserGym; run by the interpreter of BrowserGym's own environment.

Knows nothing of ours, for nothing of ours is installed there. Commands come on stdin, answers go to stdout, a line
each: ``episodes N`` plays N episodes and answers with a JSON list of (seconds of reset, seconds of step, success).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def link_browser(program: str) -> None:
    """Let Playwright find the system's Chromium where it looks for its own, if its own is not there."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        place = Path(playwright.chromium.executable_path)
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(program)


def play(env: Any, seed: int) -> tuple[float, float, bool]:
    """One episode: reset, find the button in the accessibility tree, click it."""
    start = time.perf_counter()
    observation, _ = env.reset(seed=seed)
    ready = time.perf_counter()
    buttons = [n for n in observation["axtree_object"]["nodes"] if n.get("role", {}).get("value") == "button"]
    _, reward, terminated, _, _ = env.step(f"click('{buttons[0]['browsergym_id']}')")
    return ready - start, time.perf_counter() - ready, bool(terminated and reward > 0)


def main() -> None:
    """Serve commands until stdin ends."""
    program, first_seed = sys.argv[1], int(sys.argv[2])
    link_browser(program)
    import browsergym.miniwob  # noqa: F401  registers the tasks
    import gymnasium

    env = gymnasium.make("browsergym/miniwob.click-test")
    seed = first_seed
    print("ready", flush=True)
    for line in sys.stdin:
        results = []
        for _ in range(int(line.split()[1])):
            results.append(play(env, seed))
            seed += 1
        print(json.dumps(results), flush=True)
    env.close()


if __name__ == "__main__":
    main()
