"""The twelve actions: each does on the page what it says, with real input, and nothing where it cannot."""

from __future__ import annotations

import time

import numpy as np
import pytest
from playing import SCHEMA, Deal, act, allowed, feature, row

from webgym.schema import Action, ActionKind
from webgym_workers.episode import Episode

pytestmark = pytest.mark.asyncio(loop_scope="session")

LOG = """<script>
const seen = [];
for (const type of ['mousedown', 'click', 'dblclick', 'mouseover', 'keydown', 'input', 'change', 'submit', 'focusin'])
  document.addEventListener(type, (e) => {
    seen.push([type, e.target.id || e.target.tagName, e.isTrusted, e.key ?? ''].join(' '));
    if (type === 'submit') { e.preventDefault(); globalThis.done = 1; globalThis.reward = 1; }
  }, true);
</script>"""


async def seen(episode: Episode, kind: str) -> list[str]:
    """Events of one type since the last look: ``target trusted key``."""
    found = await episode.page.evaluate("(k) => seen.splice(0).filter(s => s.startsWith(k + ' '))", kind)
    return [s.removeprefix(f"{kind} ").strip() for s in found]


async def value(episode: Episode, name: str = "field") -> str:
    return str(await episode.page.evaluate(f"document.getElementById('{name}').value"))


async def test_click(deal: Deal) -> None:
    episode = await deal(LOG + "<button id=a>A</button><button id=b>B</button>")
    step = await act(episode, ActionKind.CLICK, "B")
    assert step.invalid is None
    assert step.settled
    assert await seen(episode, "click") == ["b true"]
    assert feature(step.view, "B", "focused") == 1


async def test_double_click(deal: Deal) -> None:
    episode = await deal(LOG + "<p id=a ondblclick=done=1>A</p><button id=b>B</button>")
    assert allowed(episode.view, ActionKind.DOUBLE_CLICK) == {"A"}
    step = await act(episode, ActionKind.DOUBLE_CLICK, "A")
    assert step.terminated
    assert await seen(episode, "dblclick") == ["a true"]


async def test_hover(deal: Deal) -> None:
    page = "<div id=a onmouseover='b.hidden = false'>Menu</div><button id=b hidden>Item</button>"
    episode = await deal(LOG + page)
    assert allowed(episode.view, ActionKind.HOVER) == {"Menu"}
    step = await act(episode, ActionKind.HOVER, "Menu")
    assert await seen(episode, "mouseover") == ["a true"]
    assert "Item" in allowed(step.view, ActionKind.CLICK)
    assert await seen(episode, "click") == []


@pytest.mark.parametrize(
    "field",
    [
        "<input id=field aria-label=F value='old text'>",
        "<input id=field aria-label=F type=password value=old>",
        "<textarea id=field aria-label=F>old\ntext</textarea>",
        "<input id=field aria-label=F oninput='value = value'>",
        "<input id=field aria-label=F autocomplete=off onfocus='setTimeout(() => select(), 30)'>",
    ],
)
async def test_type_replaces_what_is_there(deal: Deal, field: str) -> None:
    text = "Übung (3) ☂ a"
    episode = await deal(LOG + field, f'Enter "{text}"')
    step = await act(episode, ActionKind.TYPE, "F", text)
    assert step.invalid is None
    assert await value(episode) == text
    assert feature(step.view, "F", "value_state") == 1
    assert feature(step.view, "F", "focused") == 1
    # It is there now, so it is not offered again.
    assert f"F={text}" not in allowed(step.view, ActionKind.TYPE)


async def test_type_sends_keys_that_pages_listen_to(deal: Deal) -> None:
    episode = await deal(LOG + "<input id=field aria-label=F>", 'Enter "ab1"')
    await act(episode, ActionKind.TYPE, "F", "ab1")
    assert await seen(episode, "keydown") == ["field true a", "field true b", "field true 1"]


async def test_type_into_rich_text(deal: Deal) -> None:
    episode = await deal("<div id=field contenteditable>old <b>words</b></div>", 'Enter "new"')
    step = await act(episode, ActionKind.TYPE, "old words", "new")
    assert await episode.page.evaluate("field.textContent") == "new"
    assert step.view.nodes[0].value == "new"


@pytest.mark.parametrize(
    ("kind", "text", "stored"),
    [
        ("date", "02/29/2024", "2024-02-29"),
        ("time", "1:07 PM", "13:07"),
        ("time", "12:05 AM", "00:05"),
        ("color", "#aabb01", "#aabb01"),
    ],
)
async def test_type_into_fields_with_pickers(deal: Deal, kind: str, text: str, stored: str) -> None:
    episode = await deal(LOG + f"<input id=field aria-label=F type={kind}>", f'Set it to "{text}"')
    step = await act(episode, ActionKind.TYPE, "F", text)
    assert step.invalid is None
    assert await value(episode) == stored
    assert [s.split(" ")[0] for s in await seen(episode, "change")] == ["field"]
    assert step.view.nodes[0].value == text
    if kind != "color":
        cleared = await act(episode, ActionKind.CLEAR, "F")
        assert cleared.invalid is None
        assert await value(episode) == ""


async def test_type_what_is_no_value_for_the_field(deal: Deal) -> None:
    episode = await deal("<input id=field aria-label=F type=date>", 'Set it to "soon"')
    step = await act(episode, ActionKind.TYPE, "F", "soon")
    assert step.invalid == "not a value for this field"
    assert step.view.observation["goal"][7] == 1


async def test_clear(deal: Deal) -> None:
    episode = await deal(LOG + "<input id=field aria-label=F value=words><input id=b aria-label=G>")
    assert allowed(episode.view, ActionKind.CLEAR) == {"F"}
    step = await act(episode, ActionKind.CLEAR, "F")
    assert await value(episode) == ""
    assert await seen(episode, "input") == ["field true"]
    assert allowed(step.view, ActionKind.CLEAR) == set()


async def test_press_enter_sends_the_form(deal: Deal) -> None:
    episode = await deal(
        LOG + "<form><input id=field aria-label=F><button>Go</button></form><script>field.focus()</script>"
    )
    assert allowed(episode.view, ActionKind.PRESS_ENTER) == {""}
    step = await act(episode, ActionKind.PRESS_ENTER)
    assert (step.terminated, step.reward, step.success) == (True, 1, True)
    assert await seen(episode, "keydown") == ["field true Enter"]


async def test_press_tab_goes_to_the_next_field(deal: Deal) -> None:
    episode = await deal("<input id=first aria-label=F><input aria-label=G><script>first.focus()</script>")
    step = await act(episode, ActionKind.PRESS_TAB)
    assert [feature(step.view, n, "focused") for n in "FG"] == [0, 1]


async def test_select_option(deal: Deal) -> None:
    page = """<select id=field aria-label=F><option>Rome<option>  Oslo  <option disabled>Bern</select>
    <select id=many aria-label=G multiple><option value=1>Rome<option value=2 selected>Lima<option value=3>Oslo"""
    episode = await deal(LOG + page, "Choose Oslo, not Bern")
    assert allowed(episode.view, ActionKind.SELECT_OPTION) == {"F=Oslo", "G=Oslo"}
    assert allowed(episode.view, ActionKind.CLICK) == set()
    step = await act(episode, ActionKind.SELECT_OPTION, "F", "Oslo")
    assert await episode.page.evaluate("field.selectedIndex") == 1
    assert [s.split(" ")[0] for s in await seen(episode, "change")] == ["field"]
    assert feature(step.view, "F", "value_state") == 1
    step = await act(episode, ActionKind.SELECT_OPTION, "G", "Oslo")
    assert await episode.page.evaluate("[...many.selectedOptions].map(o => o.value)") == ["2", "3"]
    assert allowed(step.view, ActionKind.SELECT_OPTION) == set()


async def test_scroll_down_and_up(deal: Deal) -> None:
    episode = await deal("<button>top</button><div style='height:1500px'></div><button>bottom</button>")
    assert allowed(episode.view, ActionKind.SCROLL_UP) == set()
    positions = [0]
    while allowed(episode.view, ActionKind.SCROLL_DOWN):
        step = await act(episode, ActionKind.SCROLL_DOWN)
        assert step.invalid is None
        positions.append(await episode.page.evaluate("scrollY"))
    assert positions[1] == 480
    assert positions == sorted(set(positions))
    assert feature(episode.view, "bottom", "hit") == 1
    assert feature(episode.view, "top", "hit") == 0.5
    assert episode.view.observation["goal"][5] == 1
    await act(episode, ActionKind.SCROLL_UP)
    assert await episode.page.evaluate("scrollY") == positions[-1] - 480


async def test_scroll_inside_of_a_page_that_does_not(deal: Deal) -> None:
    episode = await deal("<ul id=list style='height:100px;overflow:auto'><li style='height:900px'>x</ul>")
    await act(episode, ActionKind.SCROLL_DOWN)
    assert await episode.page.evaluate("list.scrollTop") == 80


async def test_back_returns_to_where_the_agent_came_from(deal: Deal, site: str) -> None:
    episode = await deal(f"{site}/nuisance.html")
    assert allowed(episode.view, ActionKind.BACK) == set()
    step = await act(episode, ActionKind.CLICK, "away")
    assert [n.text for n in step.view.nodes] == ["second page"]
    step = await act(episode, ActionKind.BACK)
    assert step.invalid is None
    assert "away" in allowed(step.view, ActionKind.CLICK)
    # Before the episode's first page there is nothing to see.
    assert allowed(step.view, ActionKind.BACK) == set()


async def test_a_page_that_left_its_history_behind(deal: Deal, site: str) -> None:
    episode = await deal("<button onclick='location.replace(\"about:blank#2\")'>Go</button>")
    step = await act(episode, ActionKind.CLICK, "Go")
    assert await episode.page.evaluate("location.href") == "about:blank#2"
    assert allowed(step.view, ActionKind.BACK) == {""}
    step = await act(episode, ActionKind.BACK)
    assert step.invalid == "nothing to go back to"
    assert await episode.page.evaluate("location.href") == "about:blank#2"


async def test_wait_lasts_until_something_changes(deal: Deal) -> None:
    # Later than what the page is waited for anyway.
    late = "<script>setTimeout(() => { document.body.innerHTML = '<p>late</p>'; }, 600)</script>"
    episode = await deal(late)
    assert allowed(episode.view, ActionKind.WAIT) == {""}
    step = await act(episode, ActionKind.WAIT)
    assert [n.text for n in step.view.nodes] == ["late"]


async def test_wait_lasts_no_longer_than_its_budget(deal: Deal) -> None:
    episode = await deal("", budget=0.2)
    start = time.monotonic()
    step = await act(episode, ActionKind.WAIT)
    assert step.invalid is None
    assert 0.2 <= time.monotonic() - start < 1.0


async def test_pages_at_rest_are_not_waited_for(deal: Deal) -> None:
    episode = await deal("<button>A</button>")
    assert allowed(episode.view, ActionKind.WAIT) == set()


async def test_what_the_mask_forbids_does_nothing_and_is_told(deal: Deal) -> None:
    episode = await deal(
        LOG
        + "<button disabled>Dead</button><input aria-label=F><select aria-label=S><option>Rome</select><p>Text",
        'Enter "ann"',
        max_steps=10_000,
    )
    await seen(episode, "click")
    html = await episode.page.evaluate("document.body.innerHTML")
    mask = episode.view.observation["action_mask"]
    forbidden = [SCHEMA.decode(int(i)) for i in np.flatnonzero(mask == 0)]
    rng = np.random.default_rng(0)
    kinds = {a.kind for a in forbidden}
    assert kinds == set(ActionKind) - {ActionKind.PRESS_TAB}
    tried = [forbidden[i] for i in rng.choice(len(forbidden), 25, replace=False)]
    tried += [next(a for a in forbidden if a.kind is kind) for kind in kinds]
    tried += [Action(ActionKind.CLICK, 99), Action(ActionKind.TYPE, 1, 99), Action(ActionKind.CLEAR, -1)]
    for action in tried:
        step = await episode.step(action)
        assert step.invalid == "the action mask forbids it"
        assert step.reward == 0
        assert not step.terminated
        # The observation says so, and nothing else of it changes but the time.
        assert step.view.observation["goal"][7] == 1
        assert np.array_equal(step.view.observation["action_mask"], mask)
        assert not step.view.observation["dom"][:, 12:14].any()
    assert await episode.page.evaluate("seen.length") == 0
    assert await episode.page.evaluate("document.body.innerHTML") == html
    step = await act(episode, ActionKind.CLICK, "F")
    assert step.view.observation["goal"][7] == 0


VANISH = {
    ActionKind.CLICK: ("gone", "<button id=x onclick=1>X</button>"),
    ActionKind.DOUBLE_CLICK: ("gone", "<p id=x ondblclick=1>X</p>"),
    ActionKind.HOVER: ("gone", "<p id=x onmouseover=1>X</p>"),
    ActionKind.TYPE: ("gone", "<input id=x aria-label=X>"),
    ActionKind.CLEAR: ("field is gone", "<input id=x aria-label=X value=1>"),
    ActionKind.SELECT_OPTION: (
        "no such option any more",
        "<select id=x aria-label=X><option>1<option>ann</select>",
    ),
}


@pytest.mark.parametrize("kind", VANISH)
@pytest.mark.parametrize("how", ["removed", "loaded anew"])
async def test_a_node_that_is_gone_by_then(deal: Deal, kind: ActionKind, how: str) -> None:
    reason, page = VANISH[kind]
    episode = await deal(page + "<button>Other</button>", "Choose ann")
    view = episode.view
    text = view.texts.index("ann") if kind in (ActionKind.TYPE, ActionKind.SELECT_OPTION) else 0
    if how == "removed":
        await episode.page.evaluate("x.remove()")
    else:
        # The same page again has other elements in the same places.
        await episode.page.navigate(await episode.page.evaluate("location.href"))
    step = await episode.step(Action(kind, row(view, "X"), text))
    assert step.invalid == reason
    assert not step.terminated
    assert step.view.observation["goal"][7] == 1
    assert "Other" in allowed(step.view, ActionKind.CLICK)


async def test_a_node_that_is_covered_or_stuck_by_then(deal: Deal) -> None:
    episode = await deal("<button style='width:90px;height:40px'>X</button>")
    view = episode.view
    cover = "position:fixed;inset:0;background:#fff"
    await episode.page.evaluate(
        f"document.body.insertAdjacentHTML('beforeend', '<div id=c style=\"{cover}\">')"
    )
    assert (await episode.step(Action(ActionKind.CLICK, row(view, "X")))).invalid == "covered"
    await episode.page.evaluate("c.remove(), document.querySelector('button').style.display = 'none'")
    view = episode.view
    assert (await episode.step(Action(ActionKind.CLICK, row(view, "X")))).invalid is not None


async def test_a_field_that_goes_when_it_is_clicked(deal: Deal) -> None:
    episode = await deal("<input aria-label=F onfocus='this.remove()'><p>left</p>", 'Enter "ann"')
    step = await act(episode, ActionKind.TYPE, "F", "ann")
    assert step.invalid == "gone"
    assert [n.text for n in step.view.nodes] == ["left"]


async def test_an_episode_is_cut_off_at_its_limit(deal: Deal) -> None:
    episode = await deal("<button>A</button>", max_steps=3)
    steps = [await act(episode, ActionKind.CLICK, "A") for _ in range(3)]
    assert [s.truncated for s in steps] == [False, False, True]
    assert not any(s.terminated for s in steps)
    assert [round(float(s.view.observation["goal"][0]) * 3) for s in steps] == [1, 2, 3]


async def test_an_end_at_the_limit_is_an_end(deal: Deal) -> None:
    episode = await deal("<button onclick='done = 1, reward = 1'>A</button>", max_steps=1)
    step = await act(episode, ActionKind.CLICK, "A")
    assert (step.terminated, step.truncated, step.success, step.reward) == (True, False, True, 1)
