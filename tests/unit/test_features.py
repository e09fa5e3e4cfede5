from __future__ import annotations

import numpy as np

from webgym.schema import Action, ActionKind, Schema
from webgym_workers.observer.features import NODE_FEATURES, View, build_view
from webgym_workers.observer.instruction import Instruction
from webgym_workers.observer.memory import EpisodeMemory
from webgym_workers.observer.snapshot import Node, NodeFlag, PageSnapshot

SCHEMA = Schema()
REACHABLE = NodeFlag.INTERACTIVE | NodeFlag.HIT


def node(id: int = 1, tag: str = "button", text: str = "", flags: int = REACHABLE, **other: object) -> Node:
    fields: dict[str, object] = {
        "type": "", "label": "", "attributes": "", "context": "", "value": None, "options": None,
        "x": 10.0, "y": 20.0, "width": 40.0, "height": 20.0, "color": "",
    }  # fmt: skip
    return Node(id=id, tag=tag, text=text, flags=flags, **{**fields, **other})  # type: ignore[arg-type]


def page(*nodes: Node, focus: int = 0, down: bool = False) -> PageSnapshot:
    return PageSnapshot("http://x/", "x", 100, 100, False, down, 0.0, focus, False, nodes)


def view(snapshot: PageSnapshot, goal: str, memory: EpisodeMemory | None = None) -> View:
    return build_view(snapshot, Instruction(goal), memory or EpisodeMemory(10), SCHEMA)


def feature(v: View, row: int, name: str) -> float:
    return float(v.observation["dom"][row, NODE_FEATURES.index(name)])


def allowed(v: View) -> set[Action]:
    return {SCHEMA.decode(int(i)) for i in np.flatnonzero(v.observation["action_mask"])}


def test_shapes_dtypes_and_range_follow_the_schema() -> None:
    v = view(page(node(text="Ok")), 'Click "Ok".')
    for name, spec in SCHEMA.fields().items():
        array = v.observation[name]
        assert array.shape == spec.shape
        assert array.dtype == spec.dtype
        assert array.min() >= 0
        assert array.max() <= 1
        if array.dtype == np.float32:
            assert np.array_equal(array.astype(np.float16).astype(np.float32), array)


def test_the_named_node_stands_out() -> None:
    v = view(page(node(1, text="Ok"), node(2, text="ok"), node(3, text="Cancel")), 'Click the "ok" button.')
    assert [feature(v, i, "equals_span") for i in range(3)] == [0, 1, 0]
    assert feature(v, 0, "contained_caseless") == 1
    assert feature(v, 2, "word_overlap") == 0


def test_mask_follows_state() -> None:
    field = NodeFlag.EDITABLE | REACHABLE
    v = view(
        page(
            node(1, "input", flags=field, value="", type="text"),
            node(2, "input", flags=field, value="abc", type="text"),
            node(3, "button", "Go", flags=REACHABLE | NodeFlag.DISABLED),
            node(4, "p", "words", flags=NodeFlag.HIT),
            node(5, "button", "Covered", flags=NodeFlag.INTERACTIVE),
        ),
        'Enter "abc" and "xyz".',
    )
    actions = allowed(v)
    assert {a.node for a in actions if a.kind is ActionKind.CLICK} == {0, 1}
    assert {a.node for a in actions if a.kind is ActionKind.CLEAR} == {1}
    typed = {(a.node, v.texts[a.text]) for a in actions if a.kind is ActionKind.TYPE}
    assert typed == {(0, "abc"), (0, "xyz"), (1, "xyz")}
    assert not any(a.kind in (ActionKind.WAIT, ActionKind.BACK, ActionKind.SCROLL_DOWN) for a in actions)


def test_select_offers_only_options_the_goal_names_and_not_the_chosen_one() -> None:
    select = node(1, "select", flags=REACHABLE, value="Rome", options=("Rome", "Oslo", "Bern"))
    v = view(page(select), "Choose Oslo or Rome from the list")
    chosen = {v.texts[a.text] for a in allowed(v) if a.kind is ActionKind.SELECT_OPTION}
    assert chosen == {"Oslo"}
    assert not any(a.kind is ActionKind.CLICK for a in allowed(v))


def test_text_is_clickable_only_when_nothing_reacts() -> None:
    texts = page(node(1, "p", "one", flags=NodeFlag.HIT), node(2, "p", "two", flags=NodeFlag.HIT))
    assert {a.node for a in allowed(view(texts, "x")) if a.kind is ActionKind.CLICK} == {0, 1}


def test_an_empty_page_still_allows_waiting() -> None:
    assert allowed(view(page(), "x")) == {Action(ActionKind.WAIT)}


def test_scroll_and_enter_need_something_to_act_on() -> None:
    v = view(page(node(1, "input", flags=REACHABLE | NodeFlag.EDITABLE, value=""), focus=2, down=True), "x")
    kinds = {a.kind for a in allowed(v)}
    assert {ActionKind.SCROLL_DOWN, ActionKind.PRESS_ENTER} <= kinds
    assert ActionKind.SCROLL_UP not in kinds


def test_of_too_many_nodes_the_named_ones_stay() -> None:
    nodes = [node(i, text=f"item {i}") for i in range(60)]
    nodes.append(node(99, text="wanted"))
    v = view(page(*nodes), 'Click "wanted".')
    assert len(v.nodes) == SCHEMA.nodes
    assert any(n.id == 99 for n in v.nodes)


def test_memory_shows_what_was_done() -> None:
    memory = EpisodeMemory(10)
    snapshot = page(node(1, text="ONE"), node(2, text="TWO"))
    before = view(snapshot, "Click ONE, then TWO.", memory)
    memory.note(ActionKind.CLICK, 1, invalid=False)
    after = view(snapshot, "Click ONE, then TWO.", memory)
    assert feature(before, 0, "times_acted") == 0
    assert feature(after, 0, "times_acted") > 0
    assert feature(after, 0, "acted_last") == 1
    assert feature(after, 1, "acted_last") == 0
    assert after.observation["goal"][0] > before.observation["goal"][0]


def test_pairs_tie_a_text_to_its_field() -> None:
    field = NodeFlag.EDITABLE | REACHABLE
    v = view(
        page(
            node(1, "input", flags=field, value="", label="Username"),
            node(2, "input", flags=field, value="", label="Password"),
        ),
        'Enter the username "keli" and the password "x9" and press login.',
    )
    beside = v.observation["pair"][:2, :2, 1]
    assert beside[0, v.texts.index("keli")] == 1
    assert beside[1, v.texts.index("x9")] == 1
    assert beside[1, v.texts.index("keli")] < 1


def test_a_field_belongs_to_the_text_that_its_label_is_nearest_to() -> None:
    field = NodeFlag.EDITABLE | REACHABLE
    v = view(
        page(
            node(1, "input", flags=field, value="", label="Movie Genre"),
            node(2, "input", flags=field, value="", context="Released Date"),
            node(3, "input", flags=field, value="", context="Director Name"),
        ),
        'Search for "crime" movies directed by "Herman" from year "2016".',
    )
    assert v.texts == ("crime", "Herman", "2016")
    beside = v.observation["pair"][:3, :3, 1]
    # The date is what is left.
    assert beside.tolist() == [[1.0, 0.5, 0.0], [0.0, 0.0, 1.0], [0.5, 1.0, 0.0]]


def test_a_row_tells_equal_icons_apart() -> None:
    rows = [
        node(1, "span", attributes="trash", context="Ann hello"),
        node(2, "span", attributes="trash", context="Bob hello"),
    ]
    v = view(page(*rows), 'Find the email by "Bob" and delete it.')
    assert [feature(v, i, "context_match") for i in (0, 1)] == [0, 1]
    assert feature(v, 0, "attribute_match") == feature(v, 1, "attribute_match") > 0


def test_without_matching_the_instruction_changes_no_node() -> None:
    """The control: two goals on one page give the same nodes, and the same actions remain possible."""
    nodes = page(
        node(1, text="Ok"),
        node(2, text="Cancel"),
        node(3, "input", value="Ok", flags=REACHABLE | NodeFlag.EDITABLE),
    )
    schema = Schema(match=False)
    found = [
        build_view(nodes, Instruction(f'Click the "{name}" button.'), EpisodeMemory(10), schema).observation
        for name in ("Ok", "Cancel")
    ]
    assert np.array_equal(found[0]["dom"], found[1]["dom"])
    assert not found[0]["pair"][:, :, [1, 3]].any()
    full = view(nodes, 'Click the "Ok" button.').observation
    assert not np.array_equal(full["dom"], found[0]["dom"])
    assert np.array_equal(full["action_mask"], found[0]["action_mask"])
