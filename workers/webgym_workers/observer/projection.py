"""Where the points of a frame are on the page around it, whatever transforms lie between. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["IDENTITY", "Projection"]


class Projection:
    """A plane drawn into another: moved, scaled, turned, or seen in perspective.

    Args:
        matrix: float64 (3, 3), of homogeneous coordinates.
    """

    def __init__(self, matrix: NDArray[np.floating[Any]]) -> None:
        self.matrix = matrix

    @classmethod
    def of_quad(cls, width: float, height: float, quad: Sequence[float]) -> Projection:
        """From the corners of a rectangle of this size to where they are drawn.

        Args:
            width: Of the rectangle, whose upper left corner is the origin.
            height: Of the rectangle.
            quad: x and y of the four corners, clockwise from the upper left.

        Raises:
            ValueError: The rectangle or what is drawn of it has no area.
        """
        corners = ((0.0, 0.0), (width, 0.0), (width, height), (0.0, height))
        rows, values = [], []
        for (x, y), u, v in zip(corners, quad[::2], quad[1::2], strict=True):
            rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
            values += [u, v]
        try:
            solved = np.linalg.solve(np.array(rows, np.float64), np.array(values, np.float64))
            projection = cls(np.append(solved, 1.0).reshape(3, 3))
            np.linalg.inv(projection.matrix)
        except np.linalg.LinAlgError:
            raise ValueError("nothing is drawn of the frame") from None
        return projection

    def inside(self, outer: Projection) -> Projection:
        """This one, drawn inside of what ``outer`` draws."""
        return Projection(outer.matrix @ self.matrix)

    def inverse(self) -> Projection:
        """Back again."""
        return Projection(np.linalg.inv(self.matrix))

    def points(self, points: Sequence[Sequence[float]]) -> list[list[float]]:
        """Where points (x, y) are drawn."""
        if not points:
            return []
        flat = np.asarray(points, np.float64).reshape(-1, 2)
        drawn = np.column_stack([flat, np.ones(len(flat))]) @ self.matrix.T
        return [[float(x), float(y)] for x, y in drawn[:, :2] / drawn[:, 2:]]

    def box(self, left: float, top: float, width: float, height: float) -> tuple[float, float, float, float]:
        """Left, top, width and height of the upright box around a rectangle as drawn."""
        right, bottom = left + width, top + height
        drawn = np.array(self.points([(left, top), (right, top), (right, bottom), (left, bottom)]))
        low, high = drawn.min(axis=0), drawn.max(axis=0)
        return float(low[0]), float(low[1]), float(high[0] - low[0]), float(high[1] - low[1])


IDENTITY = Projection(np.eye(3))
