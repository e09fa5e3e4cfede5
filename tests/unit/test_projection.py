"""Projections of frames into the page around them."""

from __future__ import annotations

import numpy as np
import pytest

from webgym_workers.observer.projection import IDENTITY, Projection

QUADS = {
    "moved": [10, 20, 110, 20, 110, 70, 10, 70],
    "scaled and turned": [50, 50, 50, 250, -50, 250, -50, 50],
    "in perspective": [0, 0, 80, 10, 80, 60, 0, 90],
}


@pytest.mark.parametrize("name", QUADS)
def test_corners_go_where_they_are_drawn_and_back(name: str) -> None:
    quad = QUADS[name]
    projection = Projection.of_quad(100, 50, quad)
    corners = [[0.0, 0.0], [100.0, 0.0], [100.0, 50.0], [0.0, 50.0]]
    drawn = projection.points(corners)
    assert np.allclose(drawn, np.reshape(quad, (4, 2)))
    assert np.allclose(projection.inverse().points(drawn), corners)
    assert np.allclose(IDENTITY.inside(projection).points(corners), drawn)
    assert projection.points([]) == []


def test_a_frame_in_a_frame() -> None:
    outer = Projection.of_quad(100, 100, [100, 100, 300, 100, 300, 300, 100, 300])
    inner = Projection.of_quad(10, 10, [50, 50, 60, 50, 60, 60, 50, 60])
    assert np.allclose(inner.inside(outer).points([(5, 5)]), [(210, 210)])


def test_boxes_stand_upright_around_what_is_turned() -> None:
    turned = Projection.of_quad(2, 2, [1, 0, 2, 1, 1, 2, 0, 1])
    assert np.allclose(turned.box(0, 0, 2, 2), (0, 0, 2, 2))
    assert np.allclose(turned.box(0, 0, 1, 1), (0.5, 0, 1, 1))


@pytest.mark.parametrize("quad", [[0] * 8, [0, 0, 10, 0, 10, 0, 0, 0]])
def test_what_is_not_drawn_has_no_projection(quad: list[float]) -> None:
    with pytest.raises(ValueError, match="nothing is drawn"):
        Projection.of_quad(10, 10, quad)
