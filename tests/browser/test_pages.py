"""Pages as they are: dialogs, odd elements, scripts of the world, scale factors; each with an outcome in time."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from urllib.parse import quote

import numpy as np
import psutil
import pytest
from playing import SCHEMA, Deal, PageTask, act, allowed, feature, row

from webgym.schema import Action, ActionKind
from webgym_workers.browser.chromium import BrowserOptions, ChromiumProcess
from webgym_workers.browser.faults import BrowserFault, CDPTimeout, TargetCrashed
from webgym_workers.browser.page import Page
from webgym_workers.episode import Episode, init_scripts

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLICK = ActionKind.CLICK
BUDGET = 5.0


@pytest.mark.parametrize(
    ("name", "kinds", "ends"),
    [
        ("timer", ["alert"], "dialogs"),
        ("several", ["confirm"] * 8, "dialogs"),
        ("prompt", ["prompt"], "dialogs"),
        ("hold", ["beforeunload"], "second"),
    ],
)
async def test_dialogs_in_mid_step(deal: Deal, site: str, name: str, kinds: list[str], ends: str) -> None:
    episode = await deal(f"{site}/dialogs.html", budget=BUDGET)
    page, before = episode.page, len(episode.page.dialogs)
    step = await act(episode, CLICK, name)
    assert (step.invalid, step.settled) == (None, True)
    assert [d.kind for d in page.dialogs[before:]] == kinds
    assert await page.evaluate("document.title") == ends
    if ends == "dialogs":
        answers = {"timer": ["late"], "several": [True] * 8, "prompt": ["Ann"]}
        assert await page.evaluate("answers") == answers[name]


async def test_a_dialog_as_the_page_is_left(deal: Deal, site: str) -> None:
    episode = await deal(f"{site}/dialogs.html", budget=BUDGET)
    # Browsers show none while a page unloads; it must not hold up anything either.
    step = await act(episode, CLICK, "unload")
    assert [n.text for n in step.view.nodes] == ["second page"]


@pytest.mark.parametrize("where", ["same", "another port", "another site"])
async def test_dialogs_of_frames(deal: Deal, site: str, other_site: str, where: str) -> None:
    host = {"same": site, "another port": other_site, "another site": site.replace("127.0.0.1", "localhost")}
    episode = await deal(f"{site}/dialogs.html", budget=BUDGET)
    page = episode.page
    await page.evaluate("(to) => { frame.src = to; }", f"{host[where]}/dialogs.html")
    await act(episode, CLICK, "several")
    before = len(page.dialogs)
    inner = max(
        range(len(episode.view.nodes)),
        key=lambda i: episode.view.nodes[i].y * (episode.view.nodes[i].text == "timer"),
    )
    step = await episode.step(Action(CLICK, inner))
    assert step.invalid is None
    if where == "same":
        assert [(d.kind, d.message) for d in page.dialogs[before:]] == [("alert", "late")]
    # Frames of other origins may not open any; the page goes on.
    assert (await page.evaluate_settled("document.title", BUDGET)).value == "dialogs"


async def test_a_file_field_opens_no_chooser(deal: Deal, site: str) -> None:
    episode = await deal(f"{site}/dialogs.html", budget=BUDGET)
    await act(episode, CLICK, "File")
    async with asyncio.timeout(5):
        while not any(d.kind == "file" for d in episode.page.dialogs):
            await asyncio.sleep(0.01)
    assert (await act(episode, CLICK, "several")).settled


async def test_more_calls_than_the_browser_takes_while_an_alert_is_up(page: Page) -> None:
    calls = [
        page.session.post("Runtime.evaluate", {"expression": f"alert({n})"}, timeout=20) for n in range(3)
    ]
    calls += [page.session.post("Runtime.evaluate", {"expression": "1"}, timeout=20) for _ in range(12)]
    await asyncio.gather(*calls)
    assert len(page.dialogs) == 3


BOX = "<div style='width:90px;height:40px'>Go</div>"
BUTTON = "<button onclick='hit()'>Go</button>"
ODD = {
    "a link around a block": f"<a href='#' onclick='hit()'>{BOX}</a>",
    "a link around a floated image": "<a href='#' onclick='hit()' title=Go>"
    "<img style='float:left;width:60px;height:40px'></a>",
    "a link without a box": f"<a href='#' style='display:contents' onclick='hit()'>{BOX}</a>",
    "a link that wraps": "<div style='width:120px'>some words first <a href='#' onclick='hit()'>Go</a></div>",
    "in a scrolled box": f"<div style='height:60px;overflow:auto'><p style='height:400px'></p>{BUTTON}</div>",
    "in a box that hides it": f"<div style='height:60px;overflow:hidden'><p style='height:400px'></p>{BUTTON}</div>",
    "under a sticky header": "<div style='position:sticky;top:0;height:100px;background:#fff'>Head</div>"
    f"<div style='height:900px'></div>{BUTTON}<div style='height:900px'></div><script>scrollTo(0, 950)</script>",
    "in a modal dialog": f"<button>Behind</button><dialog id=d>{BUTTON}</dialog><script>d.showModal()</script>",
    "in nested shadow roots": """<div id=h></div><script>
        let at = h;
        for (let i = 0; i < 4; i++) {
          at = at.attachShadow({mode: 'open'}).appendChild(document.createElement('div'));
          at.style.padding = '3px';
        }
        const b = document.createElement('button');
        b.textContent = 'Go';
        b.onclick = hit;
        at.attachShadow({mode: 'open'}).append(b);</script>""",
    "scaled and turned": "<div style='display:inline-block;transform:rotate(30deg) scale(1.4);margin:90px'>"
    f"{BUTTON}</div>",
}


@pytest.mark.parametrize("odd", ODD)
async def test_odd_elements_are_clicked(deal: Deal, odd: str) -> None:
    episode = await deal(
        f"<script>const hit = () => {{ globalThis.done = 1; }}</script>{ODD[odd]}", budget=BUDGET
    )
    if odd == "in a modal dialog":
        assert allowed(episode.view, CLICK) == {"Go"}
    step = await act(episode, CLICK, "Go")
    assert (step.invalid, step.terminated) == (None, True)


async def test_a_link_over_several_lines(deal: Deal) -> None:
    text = "Go on over several lines of text"
    episode = await deal(
        f"<div style='width:150px'>words before it <a href='#' onclick='done = 1'>{text}</a> and after</div>"
    )
    assert (await act(episode, CLICK, text)).terminated


async def test_what_takes_no_clicks_is_not_offered(deal: Deal) -> None:
    episode = await deal(
        "<button>yes</button><fieldset disabled><button>a</button><legend><button>legend</button></legend></fieldset>"
        "<div inert><button>b</button></div><button style='pointer-events:none'>c</button>"
    )
    assert allowed(episode.view, CLICK) == {"yes", "legend"}


async def test_an_option_far_down_a_long_list(deal: Deal) -> None:
    many = "".join(f"<option>Item {n}</option>" for n in range(1500))
    episode = await deal(f"<select id=s aria-label=S>{many}</select>", 'Choose "Item 1234"')
    assert allowed(episode.view, ActionKind.SELECT_OPTION) == {"S=Item 1234"}
    await act(episode, ActionKind.SELECT_OPTION, "S", "Item 1234")
    assert await episode.page.evaluate("s.selectedIndex") == 1234


TEXTS = [
    "漢字かな交じり文",
    "한국어 텍스트",
    "🙂👩‍👩‍👧‍👦🇩🇪👍🏽",
    "שלום עולם",
    "مرحبا بالعالم",
    "e\u0301a\u0308 ก็ नि",
    "naïve ß Ω ☂",
]


@pytest.mark.parametrize("text", TEXTS)
async def test_text_of_all_the_world(deal: Deal, text: str) -> None:
    episode = await deal(
        f"<input aria-label=F><textarea aria-label=G dir=auto></textarea><button onclick='done = 1'>{text}</button>",
        f'Enter "{text}"',
    )
    for name in ("F", "G"):
        step = await act(episode, ActionKind.TYPE, name, text)
        assert step.view.nodes[row(step.view, name)].value == text
        assert feature(step.view, name, "value_state") == 1
    assert feature(episode.view, text, "equals_span") == 1
    assert (await act(episode, CLICK, text)).terminated


async def test_scripts_are_drawn_with_glyphs(page: Page, pages: str) -> None:
    await page.navigate(f"{pages}/glyphs.html")
    assert await page.evaluate("[drawn('A') === drawn('B'), boxes('\\u{10FFFD}') !== '']") == [False, True]
    assert await page.evaluate("boxes", "漢字かな交じり文简体龍한국어🙂👍🇩🚀ΩЖñ€") == ""


@pytest.mark.parametrize("scale", [1.0, 1.5, 2.0])
async def test_geometry_at_scale_factors(
    process: ChromiumProcess, site: str, other_site: str, scale: float
) -> None:
    page = await Page.open(process.client, device_scale_factor=scale, timeout=10.0)
    query = quote(f"{other_site}/framed.html", safe="")
    task = PageTask(
        f"{site}/framing.html?src={query}&style={quote('transform:scale(0.7) rotate(10deg)')}", ""
    )
    for script in init_scripts(task):
        await page.add_script(script)
    episode = Episode(page, task, SCHEMA, settle_budget=BUDGET)
    await episode.reset(0)
    assert await page.evaluate("devicePixelRatio") == scale
    await act(episode, CLICK, "Near")
    async with asyncio.timeout(10):
        while not (told := await page.evaluate("told")):
            await asyncio.sleep(0.02)
    assert told[0][:2] == ["click", "near"]
    assert np.allclose(told[0][2:4], (100, 55), atol=1.01)
    await page.close()


def renderers(process: ChromiumProcess) -> set[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return {p for p in children if "--type=renderer" in p.cmdline()}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_renderer_that_is_killed_or_stopped_in_mid_click(
    chromium: object, how: signal.Signals
) -> None:
    process = await ChromiumProcess.launch(BrowserOptions())
    try:
        page = await Page.open(process.client, timeout=1.0)
        await page.navigate("data:text/html,<button onclick='for(let t=Date.now();Date.now()<t+300;);'>B")
        pending = [asyncio.ensure_future(page.click(20, 15)) for _ in range(4)]
        pending.append(asyncio.ensure_future(page.evaluate_settled("1", 0.5)))
        await asyncio.sleep(0)
        for renderer in renderers(process):
            os.kill(renderer.pid, how)
        start = time.monotonic()
        results = await asyncio.gather(*pending, return_exceptions=True)
        wanted = TargetCrashed if how is signal.SIGKILL else CDPTimeout
        assert isinstance(results[-1], wanted)
        assert all(result is None or isinstance(result, BrowserFault) for result in results[:-1])
        assert time.monotonic() - start < 10
        await page.close()
    finally:
        await process.stop()
