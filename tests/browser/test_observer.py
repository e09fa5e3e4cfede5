"""What is read off a page: its key nodes, their state, how they fit the instruction; whatever the page is like."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest
from playing import SCHEMA, Deal, act, allowed, feature, row

from webgym.schema import ActionKind
from webgym_workers.browser.faults import BrowserFault
from webgym_workers.env import observation_space
from webgym_workers.observer.features import View

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLICK, TYPE = ActionKind.CLICK, ActionKind.TYPE


def names(view: View) -> list[str]:
    return [n.text or n.label or n.attributes.split(" ")[0] or n.tag for n in view.nodes]


async def test_arrays_have_their_declared_shapes_and_range(deal: Deal) -> None:
    episode = await deal(
        """<h1>Shop</h1><p>Choose what you like</p>
        <input placeholder=Name value=Ann><button disabled>Buy</button><a href=#x>Terms</a>
        <input type=checkbox checked><select><option>one<option selected>two</select>
        <div style="position:absolute;left:-300px;top:9000px;width:9000px;height:50px" onclick=1>far</div>
        <div style="position:absolute;left:900px;top:-70px;width:10px;height:10px" onclick=1>out</div>""",
        'Enter "Ann" as the Name, select two, and press "Buy" 3 times.',
    )
    observation = episode.view.observation
    assert observation_space(SCHEMA).contains(observation)
    for name, spec in SCHEMA.fields().items():
        array = observation[name]
        assert (array.shape, array.dtype) == (spec.shape, spec.dtype), name
        assert np.isfinite(array).all(), name
        assert array.min() >= 0, name
        assert array.max() == 1, name
        if array.dtype == np.float32:
            assert np.array_equal(array * 256, np.rint(array * 256)), name
    assert observation["dom"].shape == (20, 25)
    assert len(episode.view.nodes) == 9
    assert observation["node_mask"].tolist() == [1] * 9 + [0] * 11
    assert observation["dom"][9:].sum() == 0
    assert observation["pair"][9:].sum() == 0
    # What reacts comes first, each group in the order of the document.
    reacting = ["Name", "Buy", "Terms", "checkbox", "select", "far", "out"]
    assert names(episode.view) == [*reacting, "Shop", "Choose what you like"]
    kinds = ["is_text_field", "is_button", "is_link", "is_checkbox", "is_select", "is_other", "is_other"]
    assert [feature(episode.view, n, k) for n, k in zip(names(episode.view), kinds, strict=False)] == [1] * 7
    assert feature(episode.view, "Shop", "is_text") == 1


async def test_of_too_many_nodes_the_named_ones_stay_in_order(deal: Deal) -> None:
    buttons = "".join(f"<button>b{i}</button>" for i in range(60))
    episode = await deal(f"<p>Intro</p>{buttons}<p>Say please</p>", 'Say please, then click "b57" and "b31".')
    kept = names(episode.view)
    assert len(kept) == 20
    assert kept.index("b31") < kept.index("b57")
    assert "Intro" not in kept
    assert episode.view.observation["node_mask"].sum() == 20
    assert {"b31", "b57"} <= allowed(episode.view, CLICK)


async def test_labels_belong_to_their_fields(deal: Deal) -> None:
    episode = await deal(
        """<label for=a>First name</label><input id=a>
        <label>Last name <input id=b></label>
        <label><input type=checkbox id=c> I <b>agree</b></label>
        <span id=l1>Post</span> <span id=l2>code</span><input id=d aria-labelledby="l1 l2">
        <input id=e placeholder=Phone><input id=f aria-label=Mail>
        <div>Street <input id=g></div>
        <table><tr><td>City</td><td><input id=h></td></tr></table>
        <label for=none>Free words</label>"""
    )
    fields = [n for n in episode.view.nodes if n.tag == "input"]
    labels = {n.attributes.removesuffix(" Mail").split(" ")[-1]: n.label for n in fields}
    assert labels == {
        "a": "First name", "b": "Last name", "c": "I agree", "d": "Post code", "e": "Phone", "f": "Mail",
        "g": "Street", "h": "City",
    }  # fmt: skip
    rest = [n.text for n in episode.view.nodes if n.tag != "input"]
    # No label is a node of its own, nor the words inside one; what only stands beside a field is.
    assert rest == ["Post", "code", "Street", "City", "Free words"]


async def test_a_label_stands_for_the_control_that_it_hides(deal: Deal) -> None:
    hidden = "display:none", "opacity:0", "position:absolute;width:1px;height:1px;clip:rect(0,0,0,0)"
    episode = await deal(
        "".join(
            f"<p><label><input type=checkbox style='{style}'> box {i}</label></p>"
            for i, style in enumerate(hidden)
        ),
        "Check box 1",
    )
    view = episode.view
    assert names(view) == ["box 0", "box 1", "box 2"]
    assert allowed(view, CLICK) == {"box 0", "box 1", "box 2"}
    assert [feature(view, n, "is_checkbox") for n in names(view)] == [1, 1, 1]
    for name in names(view):
        assert feature((await act(episode, CLICK, name)).view, name, "checked") == 1
    assert (
        await episode.page.evaluate("[...document.querySelectorAll('input')].map(i => i.checked)")
        == [True] * 3
    )


async def test_hit_says_whether_a_click_would_arrive(deal: Deal) -> None:
    box = "position:absolute;width:100px;height:40px"
    episode = await deal(
        f"""<style>button{{{box}}} div{{position:absolute;background:#eee}}</style>
        <button style="left:0;top:0">free</button>
        <button style="left:0;top:100px">covered</button>
        <div style="left:0;top:100px;width:100px;height:40px"></div>
        <button style="left:0;top:200px" onclick="done=1">partly</button>
        <div style="left:0;top:200px;width:100px;height:35px"></div>
        <button style="left:0;top:300px;pointer-events:none">numb</button>
        <button style="left:0;top:2000px" onclick="done=1">below</button>
        <style>section{{position:absolute;left:300px;width:120px;overflow:auto;white-space:nowrap}}</style>
        <section style="top:0;height:100px">
        <p style="height:300px">words</p><button style="position:static" onclick="done=1">inside</button></section>
        <section style="top:200px;height:60px">
        <p style="width:900px">more</p><button style="left:700px;top:0" onclick="done=1">aside</button></section>"""
    )
    view = episode.view
    hits = {n: feature(view, n, "hit") for n in names(view)}
    assert hits == {
        "free": 1, "covered": 0, "partly": 1, "numb": 0, "below": 0.5, "inside": 0.5, "aside": 0.5,
        "words": 1, "more": 1,
    }  # fmt: skip
    assert allowed(view, CLICK) == {"free", "partly", "below", "inside", "aside"}
    for name in ("partly", "below", "inside", "aside"):
        await episode.page.evaluate("done = 0")
        step = await act(episode, CLICK, name)
        assert step.terminated, name
        assert step.invalid is None


async def test_state_of_controls(deal: Deal) -> None:
    episode = await deal(
        """<input type=checkbox aria-label=off><input type=checkbox checked aria-label=on>
        <input type=radio name=r checked aria-label=radio><div role=switch aria-checked=true tabindex=0>switch</div>
        <select aria-label=one><option>red<option selected>green<option disabled>grey</select>
        <select aria-label=many multiple><option selected>x<option>y<option selected>z</select>
        <input type=password aria-label=secret value=hunter2>
        <div contenteditable aria-label=rich>some <b>words</b></div>
        <textarea aria-label=area>lines</textarea><input readonly aria-label=fixed value=1>
        <input disabled aria-label=dead><fieldset disabled><button>also dead</button></fieldset>
        <input type=date aria-label=day value=2024-03-09><input type=time aria-label=hour value=13:05>
        <input aria-label=focus id=last><script>last.focus()</script>""",
        "Choose green or grey, type words, and set 03/09/2024.",
    )
    view = episode.view
    nodes = {n: view.nodes[row(view, n)] for n in names(view)}
    assert {n: feature(view, n, "checked") for n in ("off", "on", "radio", "switch")} == {
        "off": 0, "on": 1, "radio": 1, "switch": 1,
    }  # fmt: skip
    assert {n: nodes[n].value for n in ("one", "many", "secret", "area", "fixed", "day", "hour")} == {
        "one": "green", "many": "x\nz", "secret": "hunter2", "area": "lines", "fixed": "1", "day": "03/09/2024",
        "hour": "1:05 PM",
    }  # fmt: skip
    rich = view.nodes[row(view, "rich")]
    assert rich.value == "some words"
    assert feature(view, "rich", "is_text_field") == 1
    assert nodes["one"].options is not None
    assert "grey" not in nodes["one"].options
    assert feature(view, "focus", "focused") == 1
    assert view.observation["goal"][6] == 1
    typable = {t.partition("=")[0] for t in allowed(view, TYPE)}
    assert typable == {"secret", "some words", "area", "day", "hour", "focus"}
    assert not {"dead", "also dead", "one", "many"} & allowed(view, CLICK)
    assert allowed(view, ActionKind.SELECT_OPTION) == set()


async def test_open_shadow_roots_are_part_of_the_page(deal: Deal) -> None:
    episode = await deal(
        """<script>
        customElements.define('my-button', class extends HTMLElement {
          connectedCallback() {
            this.attachShadow({mode: 'open'}).innerHTML = '<style>p{margin:0}</style><button><slot></slot></button>';
            this.shadowRoot.querySelector('button').addEventListener('click', () => { globalThis.done = 1; });
          }
        });
        customElements.define('my-field', class extends HTMLElement {
          connectedCallback() {
            this.attachShadow({mode: 'open'}).innerHTML =
              '<label id=t>Town <input></label><p>Below</p><slot name=none></slot>';
          }
        });
        </script><my-button>Send</my-button><my-button><i>Slanted</i></my-button><my-field>unseen</my-field>""",
        'Enter "Ulm" as the town and click "Send"',
    )
    view = episode.view
    assert [(n.tag, n.text, n.label) for n in view.nodes] == [
        ("button", "Send", ""), ("button", "Slanted", ""), ("input", "", "Town"), ("p", "Below", ""),
    ]  # fmt: skip
    assert {"Send", "Slanted", "Town"} <= allowed(view, CLICK)
    typed = await act(episode, TYPE, "Town", "Ulm")
    assert typed.invalid is None
    assert feature(typed.view, "Town", "value_state") == 1
    assert feature(typed.view, "Town", "focused") == 1
    assert (await act(episode, CLICK, "Slanted")).terminated


async def test_frames_of_the_same_origin_are_part_of_the_page(deal: Deal, site: str) -> None:
    inner = "<body style=margin:0><input aria-label=Inner><button style='position:absolute;top:500px'>Deep</button>"
    episode = await deal(
        f"""<p style="margin:0;height:100px">Outer</p>
        <iframe style="border:7px solid;padding:3px;margin:11px;width:300px;height:200px" srcdoc="{inner}
        <script>const b = document.querySelector('button');
        b.addEventListener('dblclick', () => {{ top.done = 1; }});</script>"></iframe>
        <iframe style="width:100px;height:50px" src="{site}/second.html"></iframe>""",
        'Type "hello" and double click Deep',
    )
    view = episode.view
    assert names(view)[:3] == ["Inner", "Deep", "Outer"]
    assert "second page" not in " ".join(names(view))
    node = view.nodes[row(view, "Inner")]
    assert (node.x, node.y) == (11 + 7 + 3, 100 + 11 + 7 + 3)
    assert feature(view, "Inner", "hit") == 1
    assert feature(view, "Deep", "hit") == 0.5
    typed = await act(episode, TYPE, "Inner", "hello")
    assert feature(typed.view, "Inner", "value_state") == 1
    assert typed.view.observation["goal"][6] == 1
    assert (await act(episode, ActionKind.CLEAR, "Inner")).view.nodes[0].value == ""
    assert (await act(episode, ActionKind.DOUBLE_CLICK, "Deep")).terminated


async def test_a_frame_that_goes_takes_its_nodes_along(deal: Deal) -> None:
    episode = await deal("<iframe srcdoc='<button>Inner</button>'></iframe><button>Outer</button>")
    await episode.page.evaluate("document.querySelector('iframe').remove()")
    step = await act(episode, CLICK, "Inner")
    assert step.invalid == "gone"
    assert names(step.view) == ["Outer"]


async def test_what_cannot_be_seen_is_not_there(deal: Deal) -> None:
    episode = await deal(
        """<button>seen</button><button hidden>a</button><button style="display:none">b</button>
        <button style="visibility:hidden">c</button><button style="opacity:0">d</button>
        <div style="display:none"><button>e</button></div><div style="opacity:0"><button>f</button>words</div>
        <div style="visibility:hidden"><button>g</button><button style="visibility:visible">shown</button></div>
        <div style="height:0;overflow:hidden"><button style="display:block;height:0;padding:0;border:0">h</button></div>
        <details><summary>more</summary><button>i</button></details>
        <div style="content-visibility:hidden"><button>j</button></div>
        <div style="display:contents">contents <button>k</button></div>
        <script>1</script><style>x{}</style><template><button>l</button></template><input type=hidden value=m>"""
    )
    assert names(episode.view) == ["seen", "shown", "more", "k", "contents"]
    opened = await act(episode, CLICK, "more")
    assert names(opened.view) == ["seen", "shown", "more", "i", "k", "contents"]


async def test_a_drawing_is_one_node_unless_its_parts_take_clicks(deal: Deal) -> None:
    parts = """<circle cx=9 cy=9 r=9 fill=red></circle><polygon points="30,0 40,20 20,20" fill=aqua></polygon>
        <text x=50 y=20 fill=blue>7</text>"""
    episode = await deal(
        f"""<svg id=icon width=60 height=20>{parts}</svg><svg id=board width=60 height=20>{parts}</svg>
        <script>
          for (const e of [icon, board, ...board.children]) e.addEventListener('click', () => {{}});
        </script>""",
        "Click on the aqua triangle",
    )
    assert [n.tag for n in episode.view.nodes] == ["svg", "circle", "polygon", "text"]
    assert episode.view.nodes[2].type == "triangle"
    fits = [feature(episode.view, n, "attribute_match") for n in ("icon", "circle", "polygon", "text")]
    assert fits == [0.0, 0.0, 1.0, 0.0]


async def test_what_names_the_only_figure_stands_out(deal: Deal) -> None:
    figure = "<svg width=60 height=20 ><text x=9 y=20 onclick=1>7</text></svg>"
    buttons = "<button>Letter</button><button>Number</button><button>Circle</button>"
    episode = await deal(f"{figure}{buttons}", "Click the button that best describes the figure.")
    assert [feature(episode.view, n, "attribute_match") for n in ("Letter", "Number", "Circle")] == [
        0.0,
        1.0,
        0.0,
    ]


async def test_menu_entries_can_be_hovered_and_say_whether_they_open(deal: Deal) -> None:
    episode = await deal(
        """<ul role=menu><li role=menuitem aria-haspopup=true tabindex=0>File</li>
        <li role=menuitem tabindex=0>Quit</li></ul><button>Plain</button>""",
        "Select Quit",
    )
    view = episode.view
    assert [feature(view, n, "is_select") for n in ("File", "Quit", "Plain")] == [1, 0, 0]
    assert allowed(view, ActionKind.HOVER) == {"File", "Quit"}


async def test_a_number_says_on_which_side_of_the_wanted_one_it_lies(deal: Deal) -> None:
    fields = "".join(
        f"<label for={n}>{n}</label><input id={n} value='{v}'>"
        for n, v in zip("abcd", (-7, -6, 2, "x"), strict=True)
    )
    episode = await deal(fields, "Select -6 with the spinner and hit Submit.")
    assert [feature(episode.view, n, "value_state") for n in "abcd"] == [0.25, 1, 0.75, 0.5]
    episode = await deal(fields, "Select between -6 and 3.")
    assert [feature(episode.view, n, "value_state") for n in "abcd"] == [0.5, 1, 0.5, 0.5]


async def test_excluded_elements_are_not_there(deal: Deal) -> None:
    episode = await deal(
        "<div id=score>Score <button>cheat</button></div><button>play</button>", exclude="#score"
    )
    assert names(episode.view) == ["play"]


async def test_quoted_spans_come_first_among_the_texts(deal: Deal) -> None:
    episode = await deal(
        "<input><select><option>Oslo<option>Bern</select>",
        'Go to Bern in May 2024, enter "zeta", then "alpha beta" and submit.',
    )
    assert episode.view.texts[:3] == ("zeta", "alpha beta", "Bern")
    text = episode.view.observation["text"]
    count = len(episode.view.texts)
    assert text[:count, 0].tolist() == [1] * count
    assert text[count:].sum() == 0
    assert text[:count, 1].tolist() == [1, 1] + [0] * (count - 2)


async def test_captions_are_matched_by_word_and_by_letter(deal: Deal) -> None:
    episode = await deal(
        "".join(f"<button>{t}</button>" for t in ("ok", "OK", "okay", "Jo", "Jo Ann", "Cancel")),
        'Click "ok" for Jo Ann, not for Bobokay.',
    )
    view = episode.view
    columns = ("equals_span", "contained", "contained_caseless", "word_overlap")
    assert {n: [feature(view, n, c) for c in columns] for n in names(view)} == {
        "ok": [1, 1, 1, 1],
        "OK": [0, 0, 1, 1],
        "okay": [0, 0, 0, 0],
        "Jo": [0, 1, 1, 1],
        "Jo Ann": [0, 1, 1, 1],
        "Cancel": [0, 0, 0, 0],
    }
    assert feature(view, "ok", "order") > feature(view, "Jo", "order") > 0


async def test_a_value_that_is_the_target_is_told(deal: Deal) -> None:
    episode = await deal(
        """<input aria-label=a value=Ann><input aria-label=b value=Bob><input aria-label=c>
        <select aria-label=d><option>Bern<option selected>Oslo</select>""",
        'Enter "Ann" and choose Oslo',
    )
    view = episode.view
    assert [feature(view, n, "value_state") for n in "abcd"] == [1, 0.5, 0, 1]
    ann, oslo = view.texts.index("Ann"), view.texts.index("Oslo")
    pair = view.observation["pair"]
    assert [pair[row(view, n), ann, 0] for n in "abcd"] == [1, 0, 0, 0]
    assert pair[row(view, "d"), oslo, 0] == 1
    # What is there already need not be typed or chosen again.
    assert "a=Ann" not in allowed(view, TYPE)
    assert {"b=Ann", "c=Ann"} <= allowed(view, TYPE)
    assert allowed(view, ActionKind.SELECT_OPTION) == set()


async def test_memory_is_about_elements_not_about_their_place(deal: Deal, site: str) -> None:
    episode = await deal(f"{site}/nuisance.html", resets_in_page=False)
    view = episode.view
    assert not view.observation["dom"][:, 12:14].any()
    step = await act(episode, CLICK, "dialogs")
    assert feature(step.view, "dialogs", "acted_last") == 1
    assert feature(step.view, "dialogs", "times_acted") == 0.25
    step = await act(episode, CLICK, "away")
    # The elements of another page are others, though they are counted from the start as well.
    assert not step.view.observation["dom"][:, 12:14].any()


PILES = {
    "flat": "for (let i = 0; i < 5000; i++) add('button', 'b' + i);",
    "stacked": "for (let i = 0; i < 3000; i++) add('button', 'b' + i).style = 'position:absolute;left:9px;top:9px';",
    "fields": "for (let i = 0; i < 2000; i++) { add('span', ''); add('input', ''); }",
    "text": "for (let i = 0; i < 6000; i++) add('p', 'words ' + i);",
    "long": "add('p', 'word '.repeat(300000)); add('input', ''); add('textarea', '').value = 'x'.repeat(2000000);",
    "deep": "let at = document.body; for (let i = 0; i < 1000; i++) at = at.appendChild(document.createElement('div'));"
    "at.append('bottom');",
    "huge": "document.body.insertAdjacentHTML('beforeend', '<button>b</button>'.repeat(50000));",
    "options": "const s = add('select', ''); for (let i = 0; i < 5000; i++) s.add(new Option('o' + i));",
}


@pytest.mark.parametrize("pile", PILES)
async def test_large_pages_take_bounded_time(deal: Deal, pile: str) -> None:
    page = (
        "<button>Target</button><script>const add = (tag, text) => { const e = document.createElement(tag); "
        f"e.textContent = text; document.body.append(e); return e; }}; {PILES[pile]}</script>"
    )
    episode = await deal(page, 'Click "Target"')
    assert "Target" in allowed(episode.view, CLICK)
    assert len(episode.view.nodes) <= 20
    assert observation_space(SCHEMA).contains(episode.view.observation)
    start = time.perf_counter()
    step = await episode.step(SCHEMA.decode(SCHEMA.actions - 1))
    seconds = time.perf_counter() - start
    assert len(step.view.nodes) <= 20
    # 0.3 s on a machine with nothing else to do; unbounded work takes minutes.
    assert seconds < 10.0


async def test_an_empty_page_allows_waiting_only(deal: Deal) -> None:
    episode = await deal("")
    assert episode.view.nodes == ()
    assert episode.view.observation["node_mask"].sum() == 0
    assert episode.view.observation["action_mask"].sum() == 1
    assert allowed(episode.view, ActionKind.WAIT) == {""}


@pytest.mark.parametrize("kind", ["Array", "Object", "String", "Number", "Boolean"])
async def test_a_page_with_its_own_way_of_writing_values_is_read_as_any_other(deal: Deal, kind: str) -> None:
    own = f"<script>{kind}.prototype.toJSON = () => 'own'</script>"
    text = "<button>Buy \\ud83d</button><input value=7 type=checkbox checked><p>three</p>"
    content = f"<body><script>document.body.innerHTML = '{text}'</script>"
    plain, tampered = await deal(content), await deal(own + content)
    assert names(plain.view) == names(tampered.view) == ["Buy \ud83d", "checkbox", "three"]
    for name, array in plain.view.observation.items():
        assert np.array_equal(array, tampered.view.observation[name]), name


@pytest.mark.parametrize(
    "tampering",
    [
        "delete globalThis.__webgym_observer; globalThis.__webgym_observer = {observe: () => 7}",
        "__webgym_observer.observe = () => ({nodes: [[1]]})",
        "globalThis.innerWidth = 'wide'",
        "Element.prototype.getBoundingClientRect = () => ({left: 'nan', top: 'nan', width: 9, height: 9})",
        "DOMRect = Range = WeakRef = Map = Set = undefined",
        "Array.prototype.push = () => 7",
        "Document.prototype.elementFromPoint = () => { throw new Error('no') }",
        "getComputedStyle = () => null",
        "document.documentElement.remove()",
        "document.body.remove()",
    ],
)
async def test_a_page_that_tampers_costs_its_episode_at_most(deal: Deal, tampering: str) -> None:
    episode = await deal("<button>Go</button>")
    await episode.page.evaluate(f"void (() => {{ {tampering} }})()")
    (outcome,) = await asyncio.gather(act(episode, CLICK, "Go"), return_exceptions=True)
    if isinstance(outcome, BaseException):
        assert isinstance(outcome, BrowserFault)
        assert outcome.blame == "site"
        assert "\n" not in str(outcome)
    else:
        assert observation_space(SCHEMA).contains(outcome.view.observation)


async def test_addresses_and_frames_of_pages_without_scripts_are_read(deal: Deal, site: str) -> None:
    # Plain text, an error page, a page in a language written from right to left.
    episode = await deal(f"{site}/slow?ms=0")
    assert names(episode.view) == ["done"]
    episode = await deal(f"{site}/no-such-page")
    assert episode.view.observation["dom"].dtype == np.float32
    episode = await deal("<html dir=rtl><button>שלום</button><p>עולם</p>", 'לחץ "שלום"')
    assert feature(episode.view, "שלום", "equals_span") == 1
