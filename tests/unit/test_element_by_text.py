"""Which node a person means by some words."""

from __future__ import annotations

import pytest

from webgym_workers.observer.element import node_with_text
from webgym_workers.observer.snapshot import Node, NodeFlag, PageSnapshot


def snapshot(*nodes: tuple[str, str]) -> PageSnapshot:
    made = tuple(
        Node(number, "button", "", text, label, "", "", None, None, 0, 0, 9, 9, NodeFlag.INTERACTIVE, "")
        for number, (text, label) in enumerate(nodes)
    )
    return PageSnapshot("", "", 9, 9, False, False, 0, 0, False, made)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("OK", 3),
        ("ok", 2),
        ("Ok", 2),
        ("ok  then", 1),
        ("look", 0),
        ("name", 4),
        ("nam", 4),
        ("nothing", None),
        ("", None),
        ("  ", None),
    ],
)
def test_which_node_words_mean(words: str, found: int | None) -> None:
    page = snapshot(("A look at it", ""), ("ok then", ""), ("ok", ""), ("OK", ""), ("", "Name"))
    node = node_with_text(page, words)
    assert (node.id if node else None) == found
