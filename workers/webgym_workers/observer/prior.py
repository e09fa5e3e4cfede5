"""Where random exploration looks first: at what the instruction names and what was not tried yet.

Uniform exploration finds the one right form of three fields once in thousands of episodes. The weights here only shift
the odds of random actions; every valid action keeps a share, and what the policy prefers is for it to learn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from webgym.schema import ActionKind, Observation
from webgym_workers.observer.features import NODE_FEATURES

__all__ = ["KIND_WEIGHTS", "ExplorationWeights", "exploration_weights"]

_F = {name: column for column, name in enumerate(NODE_FEATURES)}

_OF_KIND = {
    ActionKind.CLICK: 4.0,
    ActionKind.TYPE: 6.0,
    ActionKind.SELECT_OPTION: 6.0,
    ActionKind.PRESS_TAB: 0.5,
    ActionKind.CLEAR: 0.5,
    ActionKind.BACK: 0.5,
    ActionKind.WAIT: 0.5,
}
KIND_WEIGHTS = np.array([_OF_KIND.get(kind, 1.0) for kind in ActionKind])
"""(12,) How often a random action is of each kind: clicking, typing and choosing are what pages are made for."""

_NAMED = 3.0
_BESIDE = 8.0
_REPEAT = 0.5
_FOCUS_ONLY = 0.3


class ExplorationWeights(NamedTuple):
    """Relative weights for :func:`webgym_policy.selection.random_action`."""

    kind: NDArray[np.float64]
    """(12,)"""
    node: NDArray[np.float64]
    """(nodes,)"""
    text: NDArray[np.float64]
    """(nodes, texts)"""


def exploration_weights(observation: Observation) -> ExplorationWeights:
    """Weights from an observation of the schema's fields, without a batch axis."""
    dom = observation["dom"].astype(np.float64)
    pair = observation["pair"].astype(np.float64)
    named = np.maximum.reduce(
        [dom[:, _F["equals_span"]], dom[:, _F["contained"]], dom[:, _F["attribute_match"]]]
    )
    # What is named first is usually to be done first; "... and click Submit" comes last and ends most episodes.
    named *= np.where(dom[:, _F["order"]] > 0, dom[:, _F["order"]], 1.0)
    node = 1.0 + _NAMED * named + _NAMED * dom[:, _F["context_match"]]
    node *= np.where(dom[:, _F["value_state"]] == 1.0, _REPEAT, 1.0)
    node *= _REPEAT ** (4.0 * dom[:, _F["times_acted"]])
    # Typing puts the caret into a field anyway; a click on it seldom does anything else.
    node *= np.where(dom[:, _F["is_text_field"]] > 0, _FOCUS_ONLY, 1.0)
    text = 1.0 + _BESIDE * np.floor(pair[:, :, 1])
    return ExplorationWeights(KIND_WEIGHTS, node, text)
