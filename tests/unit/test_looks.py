"""Words for what nodes look like, and how well an instruction's fit them."""

from __future__ import annotations

import pytest

from webgym_workers.observer.colors import color_name, hue_name
from webgym_workers.observer.instruction import Instruction
from webgym_workers.observer.looks import looks_of
from webgym_workers.observer.snapshot import Node


def figure(tag: str, height: float, color: str = "rgb(255, 0, 0)", text: str = "", type: str = "") -> Node:
    row = [1, tag, type, text, "", "", "", None, None, 0, 0, height, height, 17, color]
    return Node.parse(row)


SHAPES = [
    figure("circle", 10),
    figure("circle", 20),
    figure("rect", 20, "rgb(0, 0, 255)"),
    figure("text", 23, "rgb(0, 0, 255)", "K"),
    figure("text", 12, "rgb(0, 0, 0)", "4"),
    figure("polygon", 10, "rgb(0, 255, 255)", type="triangle"),
]


@pytest.mark.parametrize(
    ("goal", "right"),
    [
        ("Click on a small red circle", [0]),
        ("Click on a large circle", [1]),
        ("Click on a blue shape", [2]),
        ("Click on a large letter", [3]),
        ("Click on a small digit", [4]),
        ("Click on a black digit", [4]),
        ("Click on an aqua item", [5]),
        ("Click on a triangle", [5]),
        ("Click on a small shape", [0, 5]),
        ("Click on the rectangle", [2]),
        ("Select all the blue shapes", [2]),
    ],
)
def test_the_figures_that_an_instruction_describes_fit_best(goal: str, right: list[int]) -> None:
    instruction = Instruction(goal)
    fits = [
        instruction.match_attributes("", node.tag, looks)
        for node, looks in zip(SHAPES, looks_of(SHAPES), strict=True)
    ]
    best = max(fits)
    assert [i for i, fit in enumerate(fits) if fit == best] == right
    assert best == 1.0


def test_where_all_figures_are_of_one_size_each_is_small_and_large() -> None:
    for goal in ("Click on a small circle", "Click on a large circle"):
        instruction = Instruction(goal)
        for node, looks in zip(SHAPES[1:3], looks_of(SHAPES[1:3]), strict=True):
            expected = 1.0 if node.tag == "circle" else 0.25
            assert instruction.match_attributes("", node.tag, looks) == expected


@pytest.mark.parametrize(
    ("goal", "fits"),
    [
        ("Select all the shades of blue and press Submit.", [1.0, 1.0, 0.0, 0.0]),
        ("Select all the shades of red and press Submit.", [0.0, 0.0, 1.0, 1.0]),
        ("Select the blue box.", [1.0, 0.25, 0.0, 0.0]),
        ("Select the red box.", [0.0, 0.0, 0.25, 0.0]),
    ],
)
def test_shades_fit_where_shades_are_asked_for(goal: str, fits: list[float]) -> None:
    colors = ("rgb(0, 0, 255)", "rgb(60, 60, 150)", "rgb(225, 96, 96)", "rgb(146, 42, 42)")
    boxes = [figure("span", 9, color) for color in colors]
    instruction = Instruction(goal)
    assert [instruction.match_attributes("", "span", looks) for looks in looks_of(boxes)] == fits


@pytest.mark.parametrize(
    ("css", "hue"),
    [
        ("rgb(215, 96, 96)", "red"),
        ("rgb(121, 246, 121)", "green"),
        ("rgb(139, 139, 248)", "blue"),
        ("rgb(240, 90, 170)", "pink"),
        ("rgb(200, 60, 70)", "red"),
        ("rgb(128, 128, 130)", ""),
        ("rgba(0, 0, 0, 0)", ""),
        ("transparent", ""),
    ],
)
def test_hues(css: str, hue: str) -> None:
    assert hue_name(css) == hue


def test_grey_is_spelled_either_way() -> None:
    assert color_name("rgb(128, 128, 128)").split() == ["gray", "grey"]
