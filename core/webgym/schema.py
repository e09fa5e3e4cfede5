"""The shape of observations and actions, and the one flat numbering of actions that all parts use.

Messages, parameters and checkpoints carry :attr:`Schema.hash`; whoever reads one refuses another hash.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from webgym import spec

__all__ = [
    "GLOBAL_KINDS",
    "NODE_KINDS",
    "TEXT_KINDS",
    "Action",
    "ActionKind",
    "Observation",
    "Schema",
    "TensorSpec",
    "observation_schema",
]

Observation = dict[str, NDArray[np.generic]]
"""One observation: the arrays of :meth:`Schema.fields`, by name. A batch has one more axis in front."""


class ActionKind(IntEnum):
    """The twelve things an agent can do on a page."""

    CLICK = 0
    DOUBLE_CLICK = 1
    HOVER = 2
    TYPE = 3
    CLEAR = 4
    PRESS_ENTER = 5
    PRESS_TAB = 6
    SELECT_OPTION = 7
    SCROLL_UP = 8
    SCROLL_DOWN = 9
    BACK = 10
    WAIT = 11


NODE_KINDS: tuple[ActionKind, ...] = (
    ActionKind.CLICK,
    ActionKind.DOUBLE_CLICK,
    ActionKind.HOVER,
    ActionKind.CLEAR,
)
"""Kinds that need a node and no text."""

TEXT_KINDS: tuple[ActionKind, ...] = (ActionKind.TYPE, ActionKind.SELECT_OPTION)
"""Kinds that need a node and a text."""

GLOBAL_KINDS: tuple[ActionKind, ...] = (
    ActionKind.PRESS_ENTER,
    ActionKind.PRESS_TAB,
    ActionKind.SCROLL_UP,
    ActionKind.SCROLL_DOWN,
    ActionKind.BACK,
    ActionKind.WAIT,
)
"""Kinds that act on the page as a whole; their node and text are ignored."""


class Action(NamedTuple):
    """One action of the MultiDiscrete (kind, node, text) space."""

    kind: ActionKind
    node: int = 0
    text: int = 0


class TensorSpec(NamedTuple):
    """Shape (without batch axis) and dtype of one field of an observation."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]


@dataclass(frozen=True)
class Schema:
    """Sizes of the observation and of the action space.

    Actions are numbered flat, and each action once, so that a mask and an argmax are exact::

        [node kinds x nodes] [text kinds x nodes x texts] [global kinds]

    With the defaults that is 4*20 + 2*20*8 + 6 = 406 actions.
    """

    nodes: int = 20
    node_features: int = 25
    texts: int = 8
    text_features: int = 8
    pair_features: int = 4
    goal_features: int = 32
    frame: tuple[int, int, int] | None = None
    match: bool = True
    """Whether features that compare nodes with the instruction's words are filled in, or stay 0."""
    version: int = field(default=2, init=False)
    """Raised whenever a feature changes its meaning without changing a size."""

    def fields(self) -> dict[str, TensorSpec]:
        """The observation's arrays by name.

        ``dom`` float32 (nodes, node_features) in [0, 1], key nodes first; ``node_mask`` uint8 (nodes,), 1 where
        ``dom`` holds a node; ``text`` float32 (texts, text_features); ``pair`` float32 (nodes, texts,
        pair_features), how a text fits a node; ``goal`` float32 (goal_features,); ``action_mask`` uint8
        (actions,), 1 where the flat action is possible now; ``frame`` uint8 (224, 224, 3) RGB, only when on.
        """
        f32, u8 = np.dtype(np.float32), np.dtype(np.uint8)
        fields = {
            "dom": TensorSpec((self.nodes, self.node_features), f32),
            "node_mask": TensorSpec((self.nodes,), u8),
            "text": TensorSpec((self.texts, self.text_features), f32),
            "pair": TensorSpec((self.nodes, self.texts, self.pair_features), f32),
            "goal": TensorSpec((self.goal_features,), f32),
            "action_mask": TensorSpec((self.actions,), u8),
        }
        if self.frame is not None:
            fields["frame"] = TensorSpec(self.frame, u8)
        return fields

    @property
    def actions(self) -> int:
        """How many flat actions there are."""
        return len(NODE_KINDS) * self.nodes + len(TEXT_KINDS) * self.nodes * self.texts + len(GLOBAL_KINDS)

    @cached_property
    def text_offset(self) -> int:
        """Flat index of the first action that takes a text."""
        return len(NODE_KINDS) * self.nodes

    @cached_property
    def global_offset(self) -> int:
        """Flat index of the first global action."""
        return self.text_offset + len(TEXT_KINDS) * self.nodes * self.texts

    @cached_property
    def hash(self) -> str:
        """Twelve hex digits over every size and the kinds' order: equal hashes mean exchangeable data."""
        kinds = ",".join(k.name for k in (*NODE_KINDS, *TEXT_KINDS, *GLOBAL_KINDS))
        sizes = (
            self.version,
            self.nodes,
            self.node_features,
            self.texts,
            self.text_features,
            self.pair_features,
            self.goal_features,
            self.frame,
            self.match,
        )
        return hashlib.sha256(f"{sizes}|{kinds}".encode()).hexdigest()[:12]

    def encode(self, action: Action) -> int:
        """Flat index of an action.

        Raises:
            ValueError: node or text out of range for a kind that uses it.
        """
        kind, node, text = action
        if kind in GLOBAL_KINDS:
            return self.global_offset + GLOBAL_KINDS.index(kind)
        if not 0 <= node < self.nodes:
            raise ValueError(f"node {node} is not in [0, {self.nodes})")
        if kind in NODE_KINDS:
            return NODE_KINDS.index(kind) * self.nodes + node
        if not 0 <= text < self.texts:
            raise ValueError(f"text {text} is not in [0, {self.texts})")
        return self.text_offset + (TEXT_KINDS.index(kind) * self.nodes + node) * self.texts + text

    def decode(self, index: int) -> Action:
        """The action of a flat index; node and text are 0 where the kind has none.

        Raises:
            ValueError: the index is out of range.
        """
        if not 0 <= index < self.actions:
            raise ValueError(f"action {index} is not in [0, {self.actions})")
        if index >= self.global_offset:
            return Action(GLOBAL_KINDS[index - self.global_offset])
        if index < self.text_offset:
            kind, node = divmod(index, self.nodes)
            return Action(NODE_KINDS[kind], node)
        rest, text = divmod(index - self.text_offset, self.texts)
        kind, node = divmod(rest, self.nodes)
        return Action(TEXT_KINDS[kind], node, text)

    @cached_property
    def kind_of(self) -> NDArray[np.int64]:
        """int64 (actions,): the :class:`ActionKind` of each flat action."""
        return np.array([int(self.decode(i).kind) for i in range(self.actions)], dtype=np.int64)

    @cached_property
    def node_of(self) -> NDArray[np.int64]:
        """int64 (actions,): the node of each flat action, 0 where the kind has none."""
        return np.array([self.decode(i).node for i in range(self.actions)], dtype=np.int64)

    @cached_property
    def text_of(self) -> NDArray[np.int64]:
        """int64 (actions,): the text of each flat action, 0 where the kind has none."""
        return np.array([self.decode(i).text for i in range(self.actions)], dtype=np.int64)

    def empty(self) -> Observation:
        """An observation of zeros, writable."""
        return {name: np.zeros(spec.shape, spec.dtype) for name, spec in self.fields().items()}


FRAME_SHAPE = (224, 224, 3)


def observation_schema(observation: spec.Observation) -> Schema:
    """The schema that a manifest's ``observation`` part asks for."""
    return Schema(
        nodes=observation.nodes,
        texts=observation.texts,
        frame=FRAME_SHAPE if observation.frame else None,
        match=observation.match,
    )
