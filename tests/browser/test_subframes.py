"""Frames that the page around them cannot look into: seen, and clicked at the right pixel."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any
from urllib.parse import quote

import numpy as np
import psutil
import pytest
from playing import Deal, act, allowed, feature, row

from webgym.schema import Action, ActionKind
from webgym_workers.browser.chromium import ChromiumProcess
from webgym_workers.episode import Episode

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLICK = ActionKind.CLICK
NEAR = (100, 55)
"""The middle of the button in the frame, in the frame's coordinates."""


def elsewhere(site: str) -> str:
    """The same server under another site's name: the frame gets a process of its own."""
    return site.replace("127.0.0.1", "localhost")


async def framed(deal: Deal, site: str, src: str, goal: str = "", **page: str) -> Episode:
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in {"src": src, **page}.items())
    return await deal(f"{site}/framing.html?{query}", goal, budget=5.0)


async def click_told(episode: Episode, name: str = "Near") -> tuple[str, float, float]:
    """Click the node of a name; what the frame then told of the click: id and place."""
    step = await act(episode, CLICK, name)
    assert step.invalid is None
    told = await told_by_frames(episode)
    assert len(told) == 1
    return told[0][1], told[0][2], told[0][3]


async def told_by_frames(episode: Episode) -> list[Any]:
    """Clicks that frames told of since the last look. Their messages take a moment from one process to another."""
    async with asyncio.timeout(10):
        while not (told := await episode.page.evaluate("told.splice(0).filter(m => m[0] === 'click')")):
            await asyncio.sleep(0.02)
    return list(told)


def near(at: tuple[float, float], to: tuple[float, float] = NEAR) -> bool:
    return bool(np.allclose(at, to, atol=1.01))


@pytest.mark.parametrize(
    "kind", ["another port", "another site", "sandboxed", "sandboxed elsewhere", "a document of its own"]
)
async def test_frames_of_other_origins_are_part_of_the_page(
    deal: Deal, site: str, other_site: str, kind: str
) -> None:
    more = {"sandbox": "allow-scripts"} if kind.startswith("sandboxed") else {}
    src = f"{elsewhere(site) if kind.endswith(('site', 'elsewhere')) else site}/framed.html"
    if kind == "another port":
        src = f"{other_site}/framed.html"
    elif kind == "a document of its own":
        src = "data:text/html," + quote(
            "<body style=margin:0><button id=near style='position:absolute;left:60px;top:40px;width:80px;height:30px'>"
            "Near</button><input aria-label=Field id=field style='position:absolute;top:90px'><script>"
            "for (const t of ['click', 'input']) addEventListener(t, (e) => top.postMessage("
            "[t, e.target.id, e.clientX, e.clientY, e.target.value], '*'))</script>"
        )
    episode = await framed(deal, site, src, 'Type "hello" there', **more)
    view = episode.view
    assert [n.text or n.label for n in view.nodes[:2]] == ["Near", "Field"]
    node = view.nodes[row(view, "Near")]
    # Below 20 pixels; in a border of 5 and a padding of 4.
    assert (node.x, node.y) == (60 + 9, 40 + 20 + 9)
    assert feature(view, "Near", "hit") == 1
    id, *at = await click_told(episode)
    assert (id, near((at[0], at[1]))) == ("near", True)
    step = await act(episode, ActionKind.TYPE, "Field", "hello")
    assert step.view.nodes[row(step.view, "Field")].value == "hello"
    assert feature(step.view, "Field", "focused") == 1
    assert step.view.observation["goal"][6] == 1
    step = await act(episode, ActionKind.CLEAR, "Field")
    assert step.view.nodes[row(step.view, "Field")].value == ""
    id, *_ = [m[1] for m in await episode.page.evaluate("told") if m[0] == "input"]
    assert id == "field"
    # The focus leaves the frame.
    step = await act(episode, CLICK, "Outer")
    assert feature(step.view, "Field", "focused") == 0
    assert step.view.observation["goal"][6] == 0.5


STYLES = {
    "scaled": "transform:scale(0.6);transform-origin:0 0",
    "moved": "transform:translate(33.5px, 21px)",
    "turned": "transform:rotate(20deg);margin:80px",
    "upside down": "transform:rotate(180deg)",
    "mirrored": "transform:scaleX(-1)",
    "in perspective": "transform:perspective(500px) rotateY(30deg);margin:40px",
    "zoomed": "zoom:1.5",
    "rotate and scale": "rotate:-10deg;scale:1.2;margin:90px",
    "percent padding": "padding:5%;border:2px solid",
}


@pytest.mark.parametrize(
    ("style", "origin"),
    [
        *((style, "same") for style in STYLES),
        *((style, "other") for style in ("turned", "zoomed")),
        *((style, "process") for style in ("scaled", "in perspective", "zoomed")),
    ],
)
async def test_frames_under_transforms(
    deal: Deal, site: str, other_site: str, style: str, origin: str
) -> None:
    server = {"same": site, "other": other_site, "process": elsewhere(site)}[origin]
    episode = await framed(deal, site, f"{server}/framed.html", style=STYLES[style])
    assert feature(episode.view, "Near", "hit") == 1
    id, *at = await click_told(episode)
    assert (id, near((at[0], at[1]))) == ("near", True), at


@pytest.mark.parametrize(
    "around", ["transform:scale(0.8) translate(20px, 10px)", "overflow:auto;height:120px"]
)
@pytest.mark.parametrize("own_process", [False, True])
async def test_scrolled_pages_and_frames(
    deal: Deal, site: str, other_site: str, around: str, own_process: bool
) -> None:
    server = elsewhere(site) if own_process else other_site
    episode = await framed(deal, site, f"{server}/framed.html", before="1500px", around=around)
    assert feature(episode.view, "Near", "hit") == 0.5
    for name, id in (("Deep", "deep"), ("Near", "near")):
        told = await click_told(episode, name)
        assert told[0] == id
    assert await episode.page.evaluate("scrollY") > 0
    await act(episode, ActionKind.SCROLL_DOWN)


@pytest.mark.parametrize(
    "order", ["process in origin", "origin in process", "same in process", "process in process"]
)
async def test_frames_in_frames(deal: Deal, site: str, other_site: str, order: str) -> None:
    kinds = {"origin": other_site, "process": elsewhere(site), "same": site}
    inner, outer = (kinds[word] for word in order.split(" in "))
    if inner == outer:
        inner = inner.replace("localhost", "a.localhost")
    src = f"{outer}/framed.html?inner={quote(f'{inner}/framed.html', safe='')}"
    episode = await framed(deal, site, src, style="height:320px;transform:scale(0.9);transform-origin:0 0")
    nodes = [n for n in episode.view.nodes if n.text == "Near"]
    assert len(nodes) == 2
    deep = episode.view.nodes.index(max(nodes, key=lambda node: node.x))
    step = await episode.step(Action(CLICK, deep))
    assert step.invalid is None
    told = await told_by_frames(episode)
    assert [m[:2] for m in told] == [["click", "near"]]
    assert near(told[0][2:4])


async def test_what_covers_a_frame_covers_its_nodes(deal: Deal, site: str, other_site: str) -> None:
    episode = await framed(deal, site, f"{other_site}/framed.html")
    view = episode.view
    cover = "position:fixed;left:0;top:0;width:120px;height:90px;background:#fff"
    await episode.page.evaluate(
        f"document.body.insertAdjacentHTML('beforeend', '<div id=c style=\"{cover}\">')"
    )
    # Most of the button is under it: a spot beside it is found.
    assert (await episode.step(Action(CLICK, row(view, "Near")))).invalid is None
    assert [m[1] for m in await told_by_frames(episode)] == ["near"]
    await episode.page.evaluate("c.style.width = '400px', c.style.height = '110px'")
    step = await episode.step(Action(CLICK, row(view, "Near")))
    assert step.invalid == "covered"
    assert await episode.page.evaluate("told") == []
    assert feature(step.view, "Near", "hit") == 0
    assert "Field" in allowed(step.view, CLICK)


async def test_a_frame_that_navigates_elsewhere(deal: Deal, site: str, other_site: str) -> None:
    episode = await framed(deal, site, f"{other_site}/framed.html")
    for server in (elsewhere(site), other_site, site):
        gone = episode.view
        await episode.page.evaluate("(to) => { frame.src = to; }", f"{server}/framed.html?{server}")
        step = await episode.step(Action(CLICK, row(gone, "Near")))
        assert step.invalid in (None, "gone", "covered")
        await episode.page.evaluate("told.length = 0")
        assert (await click_told(episode))[0] == "near"
    await episode.page.evaluate("frame.remove()")
    assert (await act(episode, CLICK, "Near")).invalid is not None
    assert [n.text for n in episode.view.nodes] == ["Outer"]


async def test_a_frame_whose_process_stops_costs_only_itself(
    process: ChromiumProcess, deal: Deal, site: str
) -> None:
    before = set(psutil.Process(process.pid).children(recursive=True))
    episode = await framed(deal, site, f"{elsewhere(site)}/framed.html")
    assert "Near" in allowed(episode.view, CLICK)
    (renderer,) = [
        p
        for p in set(psutil.Process(process.pid).children(recursive=True)) - before
        if "renderer" in " ".join(p.cmdline())
    ][-1:]
    os.kill(renderer.pid, signal.SIGKILL)
    step = await act(episode, CLICK, "Outer")
    assert allowed(step.view, CLICK) == {"Outer"}
