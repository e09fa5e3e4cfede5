"""What the tests of observation, action and environment share: an episode on a page written in the test itself."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from webgym.schema import Action, ActionKind, Observation, Schema
from webgym_workers.browser.cdp import CDPClient
from webgym_workers.browser.page import Page
from webgym_workers.env import WebEnv
from webgym_workers.episode import Episode, Step, init_scripts
from webgym_workers.observer.features import NODE_FEATURES, View
from webgym_workers.observer.snapshot import Node
from webgym_workers.tasks import Outcome, Task

__all__ = [
    "CLICK_FIRST",
    "SCHEMA",
    "WAIT",
    "Deal",
    "PageTask",
    "act",
    "allowed",
    "browser_pid",
    "dealing",
    "feature",
    "row",
    "same",
    "shared_memory_left",
]

SCHEMA = Schema()
CLICK_FIRST = np.array([ActionKind.CLICK, 0, 0])
WAIT = np.array([ActionKind.WAIT, 0, 0])

Deal = Callable[..., Awaitable[Episode]]
"""``deal(html, goal="", **task)``: an episode, reset, on a page of that HTML (or at an address)."""

STYLE = "<!doctype html><meta charset=utf-8><style>body{margin:0;font:16px sans-serif}</style>"


class PageTask(Task):
    """One page, done when it says so: ``done`` and ``reward`` are globals of the page."""

    probe = "({done: !!globalThis.done, reward: globalThis.reward || 0})"

    def __init__(self, page: str, goal: str, **attributes: Any) -> None:
        self._url = page if ":" in page[:6] else f"data:text/html,{quote(STYLE + page)}"
        self._goal = goal
        for name, value in attributes.items():
            setattr(self, name, value)

    def start_page(self, seed: int) -> str:
        return self._url

    def goal(self, seed: int) -> str:
        return self._goal

    def judge(self, probe: Any) -> Outcome:
        return (
            Outcome(probe["reward"], probe["done"], probe["done"] and probe["reward"] >= 1)
            if probe
            else Outcome()
        )


@asynccontextmanager
async def dealing(client: CDPClient) -> AsyncIterator[Deal]:
    """Episodes on one page of a browser; dealing one ends the one before."""
    # Time enough for a machine under load.
    page = await Page.open(client, timeout=10.0)
    for script in init_scripts(PageTask("", "")):
        await page.add_script(script)

    async def deal(html: str, goal: str = "", budget: float = 2.0, **attributes: Any) -> Episode:
        episode = Episode(page, PageTask(html, goal, **attributes), SCHEMA, settle_budget=budget)
        await episode.reset(0)
        return episode

    yield deal
    await page.close()


def row(view: View, name: str) -> int:
    """The row of the only node whose text, label or first attribute word is ``name``."""
    rows = [
        i for i, n in enumerate(view.nodes) if name in (n.text, n.label, n.attributes.split(" ")[0], n.tag)
    ]
    assert len(rows) == 1, f"{name!r} is {len(rows)} of {[_words(n) for n in view.nodes]}"
    return rows[0]


def _words(node: Node) -> tuple[str, str, str, str]:
    return node.tag, node.text, node.label, node.attributes


def feature(view: View, name: str, column: str) -> float:
    """A feature of the node that :func:`row` finds."""
    return float(view.observation["dom"][row(view, name), NODE_FEATURES.index(column)])


def allowed(view: View, kind: ActionKind, schema: Schema = SCHEMA) -> set[str]:
    """What the mask allows of a kind: names of nodes (``node=text`` where a text belongs to it), or ``{""}``."""
    found = set()
    for index in np.flatnonzero(view.observation["action_mask"]):
        action = schema.decode(int(index))
        if action.kind is not kind:
            continue
        if kind in (ActionKind.TYPE, ActionKind.SELECT_OPTION):
            found.add(f"{_name(view.nodes[action.node])}={view.texts[action.text]}")
        elif kind in (ActionKind.CLICK, ActionKind.DOUBLE_CLICK, ActionKind.HOVER, ActionKind.CLEAR):
            found.add(_name(view.nodes[action.node]))
        else:
            found.add("")
    return found


def _name(node: Node) -> str:
    return node.text or node.label or node.attributes.split(" ")[0]


async def act(episode: Episode, kind: ActionKind, name: str = "", text: str = "") -> Step:
    """Do an action on the node and with the text of these names; the mask must allow it."""
    node = row(episode.view, name) if name else 0
    which = episode.view.texts.index(text) if text else 0
    action = Action(kind, node, which)
    assert episode.view.observation["action_mask"][SCHEMA.encode(action)], f"the mask forbids {action}"
    return await episode.step(action)


def shared_memory_left(before: set[str] | None = None, seconds: float = 5.0) -> set[str]:
    """Names in shared memory beyond those ``before``; what others come and go with is waited for."""
    memory = Path("/dev/shm")
    deadline = time.monotonic() + seconds
    while True:
        left = set(os.listdir(memory) if memory.is_dir() else ()) - (before or set())
        if before is None or not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def same(one: Observation, other: Observation) -> bool:
    """Whether two observations have the same arrays with the same values."""
    return list(one) == list(other) and all(np.array_equal(one[name], other[name]) for name in one)


def browser_pid(env: WebEnv) -> int:
    """Process id of the browser of an environment that was reset."""
    assert env._pool is not None
    return env._pool[0].process.pid
