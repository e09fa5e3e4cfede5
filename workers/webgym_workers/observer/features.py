"""Observation arrays from a page snapshot, the instruction and the episode's memory. Pure: no page, no clock.

Every value lies in [0, 1] and is a multiple of 1/256, so float16 holds it exactly.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from webgym.schema import GLOBAL_KINDS, NODE_KINDS, TEXT_KINDS, ActionKind, Observation, Schema
from webgym_workers.observer.instruction import Instruction, words
from webgym_workers.observer.looks import looks_of
from webgym_workers.observer.memory import EpisodeMemory
from webgym_workers.observer.snapshot import Node, NodeFlag, PageSnapshot

__all__ = ["NODE_FEATURES", "View", "build_view"]

NODE_FEATURES = (
    "present", "is_button", "is_link", "is_text_field", "is_checkbox", "is_radio", "is_select", "is_text", "is_other",
    "focused", "checked", "value_state", "times_acted", "acted_last", "x", "y", "size", "equals_span", "contained",
    "contained_caseless", "word_overlap", "attribute_match", "hit", "order", "context_match",
)  # fmt: skip
"""The 25 columns of ``dom``. ``value_state`` is 0 for an empty field, 0.5 for one with a value, 1 for a wanted one;
a number below the only one that the instruction names is 0.25, one above it 0.75."""

_F = {name: column for column, name in enumerate(NODE_FEATURES)}
_MATCHING = [
    _F[name]
    for name in (
        *("equals_span", "contained", "contained_caseless", "word_overlap", "attribute_match"),
        *("order", "context_match"),
    )
]
_GOAL_FIXED = 12
_SHORT = 3
"""Words that a label has at most."""
_NUMBER = re.compile(r"-?\d{1,9}(?:\.\d{1,6})?", re.ASCII)


@dataclass(frozen=True)
class View:
    """One observation with what is needed to act on it."""

    observation: Observation
    nodes: tuple[Node, ...]
    """The nodes behind the rows of ``dom``."""
    texts: tuple[str, ...]
    """The texts behind the rows of ``text``."""


def build_view(
    snapshot: PageSnapshot, instruction: Instruction, memory: EpisodeMemory, schema: Schema
) -> View:
    """Turn a page into arrays: see :meth:`webgym.schema.Schema.fields` for shapes and dtypes."""
    nodes = _key_nodes(snapshot, instruction, schema.nodes)
    options = tuple(o for n in nodes if n.options for o in n.options)
    texts = instruction.candidates(schema.texts, options)
    observation = schema.empty()
    dom = observation["dom"]
    _fill_nodes(dom, nodes, texts, snapshot, instruction, memory)
    observation["node_mask"][: len(nodes)] = 1
    pair = observation["pair"]
    _fill_pairs(pair, nodes, texts, instruction)
    _fill_texts(observation["text"], nodes, texts, instruction)
    _fill_goal(observation["goal"], dom, nodes, texts, snapshot, instruction, memory)
    _fill_mask(observation["action_mask"], nodes, texts, pair, snapshot, memory, schema)
    if not schema.match:
        _forget_matches(observation)
    for name in ("dom", "text", "pair", "goal"):
        array = observation[name]
        np.clip(array, 0.0, 1.0, out=array)
        np.multiply(array, 256.0, out=array)
        np.rint(array, out=array)
        np.divide(array, 256.0, out=array)
    return View(observation, nodes, texts)


def _forget_matches(observation: Observation) -> None:
    """Leave only what a page says by itself: no column that compares a node with the instruction."""
    dom = observation["dom"]
    dom[:, _MATCHING] = 0.0
    dom[:, _F["value_state"]] = 0.5 * (dom[:, _F["value_state"]].astype(np.float32) > 0)
    observation["pair"][:, :, [1, 3]] = 0.0
    observation["text"][:, 7] = 0.0
    observation["goal"][3:5] = 0.0


def _key_nodes(snapshot: PageSnapshot, instruction: Instruction, limit: int) -> tuple[Node, ...]:
    """The ``limit`` nodes that matter most: interactive before text, and of too many those that the goal names."""
    nodes = snapshot.nodes
    if len(nodes) <= limit:
        return nodes

    def worth(node: Node) -> float:
        match = instruction.match(node.caption)
        score = 4.0 * match.equals + 2.0 * match.contained + match.contained_caseless + match.overlap
        score += instruction.match_attributes(node.attributes, node.tag) + 1.5 * _context_match(
            node, instruction
        )
        if node.flags & NodeFlag.INTERACTIVE:
            score += 8.0
        if node.flags & NodeFlag.EDITABLE or node.tag in ("select", "button"):
            score += 1.0
        if node.flags & NodeFlag.HIT:
            score += 0.5
        return score

    kept = sorted(range(len(nodes)), key=lambda i: (-worth(nodes[i]), i))[:limit]
    return tuple(nodes[i] for i in sorted(kept))


def _kind_column(node: Node) -> str:
    if not node.flags & NodeFlag.INTERACTIVE:
        return "is_text"
    if node.type == "checkbox":
        return "is_checkbox"
    if node.type == "radio":
        return "is_radio"
    if node.flags & (NodeFlag.EDITABLE | NodeFlag.READONLY):
        return "is_text_field"
    if node.tag == "select" or node.type == "popup":  # an entry that opens a menu of its own
        return "is_select"
    if node.tag == "button" or node.type in ("button", "submit", "reset", "image"):
        return "is_button"
    if node.tag == "a" or node.type in ("link", "tab", "menuitem", "option", "treeitem"):
        return "is_link"
    return "is_other"


def _wanted(node: Node, texts: tuple[str, ...], instruction: Instruction) -> bool:
    """Whether the field holds a value that the instruction names."""
    if not node.value:
        return False
    values = node.value.split("\n") if node.tag == "select" else [node.value]
    return all(v in texts or instruction.match(v).contained > 0 for v in values)


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _side(value: str, numbers: set[float]) -> float:
    """Where the value of a field lies when it is not the wanted one."""
    held = _number(value)
    if held is None or len(numbers) != 1:
        return 0.5
    (wanted,) = numbers
    return 0.25 if held < wanted else 0.75 if held > wanted else 0.5


def _context_match(node: Node, instruction: Instruction) -> float:
    """1 when the row around the node holds a name of the instruction's that the node itself does not."""
    if not node.context:
        return 0.0
    return float(any(s in node.context and s not in node.text for s in instruction.names))


def _fill_nodes(
    dom: NDArray[np.generic],
    nodes: tuple[Node, ...],
    texts: tuple[str, ...],
    snapshot: PageSnapshot,
    instruction: Instruction,
    memory: EpisodeMemory,
) -> None:
    width, height = max(1, snapshot.width), max(1, snapshot.height)
    numbers = {number for text in texts if (number := _number(text)) is not None}
    seen = looks_of(nodes)
    figures = [looks.form for looks in seen if looks.form]
    # Where the page shows one figure, what names it stands out.
    figure = figures[0] if len(figures) == 1 else frozenset()
    for row, node, looks in zip(dom, nodes, seen, strict=False):
        flags = node.flags
        row[_F["present"]] = 1.0
        row[_F[_kind_column(node)]] = 1.0
        row[_F["focused"]] = float(bool(flags & NodeFlag.FOCUSED))
        row[_F["checked"]] = float(bool(flags & NodeFlag.CHECKED))
        if node.value:
            row[_F["value_state"]] = 1.0 if _wanted(node, texts, instruction) else _side(node.value, numbers)
        row[_F["times_acted"]] = min(memory.acted.get(node.id, 0), 4) / 4
        row[_F["acted_last"]] = float(node.id == memory.last_node)
        row[_F["x"]] = (node.x + node.width / 2) / width
        row[_F["y"]] = (node.y + node.height / 2) / height
        row[_F["size"]] = (max(0.0, node.width * node.height) / (width * height)) ** 0.5
        match = instruction.match(node.caption)
        row[_F["equals_span"]] = match.equals
        row[_F["contained"]] = match.contained
        row[_F["contained_caseless"]] = match.contained_caseless
        row[_F["word_overlap"]] = match.overlap
        row[_F["order"]] = match.order
        row[_F["attribute_match"]] = instruction.match_attributes(
            f"{node.attributes} {node.type}", node.tag, looks
        )
        if figure and not looks.form and figure.intersection(words(node.caption)):
            row[_F["attribute_match"]] = 1.0
        row[_F["hit"]] = 1.0 if flags & NodeFlag.HIT else 0.5 if flags & NodeFlag.OFFSCREEN else 0.0
        row[_F["context_match"]] = _context_match(node, instruction)


def _fill_pairs(
    pair: NDArray[np.generic], nodes: tuple[Node, ...], texts: tuple[str, ...], instruction: Instruction
) -> None:
    """Columns: the field holds the text; the field's label stands beside the text in the instruction, 1 for the text
    that it is nearest to and 0.5 for others; field and text have the same rank; the node offers or shows the text."""
    fields = [i for i, n in enumerate(nodes) if n.flags & NodeFlag.EDITABLE]
    rank = {node: r for r, node in enumerate(fields)}
    for i, node in enumerate(nodes):
        if not node.flags & NodeFlag.INTERACTIVE:
            continue
        beside = _beside(node, texts, instruction)
        held = node.value.split("\n") if node.value else []
        for j, text in enumerate(texts):
            if text in held:
                pair[i, j, 0] = 1.0
            pair[i, j, 1] = beside[j]
            if rank.get(i) == j:
                pair[i, j, 2] = 1.0
            if (node.options and text in node.options) or text == node.text:
                pair[i, j, 3] = 1.0
    claimed = pair[fields, : len(texts), 1].astype(np.float32) == 1.0
    nameless, unclaimed = np.flatnonzero(~claimed.any(axis=1)), np.flatnonzero(~claimed.any(axis=0))
    if len(nameless) == len(unclaimed) == 1 and len(fields) > 1:
        # Of several fields and texts one is left of each: they belong together.
        pair[fields[nameless[0]], unclaimed[0], 1] = 1.0


def _beside(node: Node, texts: tuple[str, ...], instruction: Instruction) -> list[float]:
    """How near the words about a node stand to each text in the instruction: 1 for the nearest, 0.5 for others, 0."""
    label = words(node.label)
    if not label and len(row := words(node.context)) <= _SHORT:
        label = row  # what stands beside a field without a label is its label
    about = frozenset(label) | frozenset(words(node.attributes))
    distances = [instruction.distance(about, text) for text in texts]
    nearest = min((d for d in distances if d is not None), default=None)
    return [0.0 if d is None else 1.0 if d == nearest else 0.5 for d in distances]


def _fill_texts(
    array: NDArray[np.generic], nodes: tuple[Node, ...], texts: tuple[str, ...], instruction: Instruction
) -> None:
    values = {v for n in nodes if n.value for v in n.value.split("\n")}
    focused = {n.value for n in nodes if n.flags & NodeFlag.FOCUSED and n.value}
    captions = {n.caption for n in nodes}
    spans = set(instruction.spans)
    for j, text in enumerate(texts):
        array[j] = (
            1.0,
            float(text in spans),
            1.0 - j / len(array),
            float(text in values),
            min(len(text), 32) / 32,
            float(any(c.isdigit() for c in text)),
            float(text in focused),
            float(text in captions),
        )


def _fill_goal(
    goal: NDArray[np.generic],
    dom: NDArray[np.generic],
    nodes: tuple[Node, ...],
    texts: tuple[str, ...],
    snapshot: PageSnapshot,
    instruction: Instruction,
    memory: EpisodeMemory,
) -> None:
    named = [
        (n, row) for n, row in zip(nodes, dom, strict=False) if n.flags & NodeFlag.INTERACTIVE and _named(row)
    ]
    done = sum(
        bool(n.flags & NodeFlag.CHECKED or memory.acted.get(n.id) or row[_F["value_state"]] == 1.0)
        for n, row in named
    )
    goal[0] = memory.step / max(1, memory.limit)
    goal[1] = min(memory.limit, 64) / 64
    goal[2] = min(len(instruction.spans), 8) / 8
    goal[3] = done / len(named) if named else 0.0
    goal[4] = min(len(named), 8) / 8
    goal[5] = snapshot.scroll
    goal[6] = snapshot.focus / 2
    goal[7] = float(memory.last_invalid)
    goal[8] = float(memory.unsettled)
    goal[9] = float(snapshot.can_scroll_up)
    goal[10] = float(snapshot.can_scroll_down)
    goal[11] = min(len(snapshot.nodes), 64) / 64
    for word in instruction.plain_words:
        goal[_GOAL_FIXED + zlib.crc32(word.encode()) % (len(goal) - _GOAL_FIXED)] = 1.0


def _named(row: NDArray[np.generic]) -> bool:
    return bool(row[_F["equals_span"]] or row[_F["contained"]])


def _fill_mask(
    mask: NDArray[np.generic],
    nodes: tuple[Node, ...],
    texts: tuple[str, ...],
    pair: NDArray[np.generic],
    snapshot: PageSnapshot,
    memory: EpisodeMemory,
    schema: Schema,
) -> None:
    """What is possible now: a click needs a node that reacts and can be hit, typing needs a field without that text."""
    size = schema.nodes
    by_node = {kind: mask[i * size : (i + 1) * size] for i, kind in enumerate(NODE_KINDS)}
    start, stop = schema.text_offset, schema.global_offset
    by_text = dict(
        zip(TEXT_KINDS, mask[start:stop].reshape(len(TEXT_KINDS), size, schema.texts), strict=True)
    )
    reachable = NodeFlag.HIT | NodeFlag.OFFSCREEN
    any_interactive = False
    any_field = False
    for i, node in enumerate(nodes):
        flags = node.flags
        if not flags & NodeFlag.INTERACTIVE or flags & NodeFlag.DISABLED or not flags & reachable:
            continue
        any_interactive = True
        by_node[ActionKind.CLICK][i] = node.tag != "select"
        by_node[ActionKind.DOUBLE_CLICK][i] = bool(flags & NodeFlag.DBLCLICK)
        by_node[ActionKind.HOVER][i] = bool(flags & NodeFlag.HOVER)
        if flags & NodeFlag.EDITABLE:
            any_field = True
            by_node[ActionKind.CLEAR][i] = bool(node.value)
            by_text[ActionKind.TYPE][i, : len(texts)] = pair[i, : len(texts), 0] == 0.0
        if node.options:
            offered = (pair[i, : len(texts), 3] == 1.0) & (pair[i, : len(texts), 0] == 0.0)
            by_text[ActionKind.SELECT_OPTION][i, : len(texts)] = offered
    if not any_interactive:
        for i, node in enumerate(nodes):
            by_node[ActionKind.CLICK][i] = bool(node.flags & reachable)
    whole = {kind: schema.global_offset + i for i, kind in enumerate(GLOBAL_KINDS)}
    mask[whole[ActionKind.PRESS_ENTER]] = snapshot.focus == 2
    mask[whole[ActionKind.PRESS_TAB]] = any_field
    mask[whole[ActionKind.SCROLL_UP]] = snapshot.can_scroll_up
    mask[whole[ActionKind.SCROLL_DOWN]] = snapshot.can_scroll_down
    mask[whole[ActionKind.BACK]] = memory.navigations > 0
    mask[whole[ActionKind.WAIT]] = memory.unsettled or not mask.any()
