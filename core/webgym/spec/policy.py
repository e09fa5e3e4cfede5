"""What the agent sees and how it acts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from webgym.spec.base import INT32_MAX, SpecModel, Whole

__all__ = ["Exploration", "Observation", "Policy"]


class Observation(SpecModel):
    """What the agent sees of a page. Changing it makes older checkpoints unusable."""

    nodes: Annotated[int, Field(ge=1, le=200), Whole] = 20
    """Key nodes of the page that are observed and can be acted on, interactive ones first. Pages with more
    controls need more; cost grows in proportion."""
    texts: Annotated[int, Field(ge=1, le=64), Whole] = 8
    """Candidate texts, drawn from the task's own words, that the agent can type or select."""
    match: bool = True
    """Whether the observation says how well nodes match the words of the instruction. Without it an agent has to
    learn every wording by heart: it is there to measure what matching is worth."""
    frame: bool = False
    """Whether a 224x224 RGB picture of the page is part of the observation. Some tasks need to see; a learner
    without a GPU becomes several times slower."""


class Exploration(SpecModel):
    """Each browser explores at a fixed rate of its own, after Ape-X (Horgan et al., 2018): browser i of N
    takes a random action with probability epsilon^(1 + alpha * i / (N - 1))."""

    epsilon: Annotated[float, Field(ge=0, le=1)] = 0.4
    """Rate of the most curious browser (and of the only one, when there is one)."""
    alpha: Annotated[float, Field(ge=0, le=100)] = 7.0
    """How much less the others explore; 0 makes all explore alike."""
    warmup_steps: Annotated[int, Field(ge=0, le=INT32_MAX), Whole] = 300
    """Environment steps, over all browsers, that are taken at random first: without them the nearly greedy
    browsers repeat what random weights prefer."""


class Policy(SpecModel):
    """The network and how browsers use it."""

    hidden_size: Annotated[int, Field(ge=8, le=4096), Whole] = 64
    """Width of the network. 64 suffices for forms and small pages; the time of an update grows with it."""
    exploration: Exploration = Field(default_factory=Exploration)
    """How browsers explore."""
    max_staleness: Annotated[int, Field(ge=0, le=INT32_MAX), Whole] = 200
    """Transitions acted with parameters more than this many versions old are dropped when they arrive, and
    counted. 0 never drops."""
    inference_batch: Annotated[int, Field(ge=1, le=4096), Whole] = 64
    """Most observations in one forward pass of a worker."""
    inference_wait_seconds: Annotated[float, Field(ge=0, le=1)] = 0.002
    """How long a forward pass waits for further browsers to ask. Longer batches more and makes each action
    later."""
