"""What a task is. A task runs no browser: it names a page, and judges what the page says."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

__all__ = ["Goal", "Outcome", "Task"]

Json = Any
"""Anything that JSON can say."""


class Goal(NamedTuple):
    """The instruction of one episode."""

    text: str
    emphasised: tuple[str, ...] = ()
    """Parts that the page sets off (bold); they count like quoted parts."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the task says of the page after a step.

    Raises:
        ValueError: the reward is not finite.
    """

    reward: float = 0.0
    """Reward since the step before."""
    done: bool = False
    """The episode has ended by the task's own rule (Gymnasium's ``terminated``)."""
    success: bool = False
    """Whether the goal is reached; meaningful with ``done``."""

    def __post_init__(self) -> None:
        # Pages answer in JSON, where 1 is a whole number and "true" may be any value.
        object.__setattr__(self, "reward", float(self.reward))
        object.__setattr__(self, "done", bool(self.done))
        object.__setattr__(self, "success", bool(self.success))
        # One reward that is no number would spoil everything learned so far.
        if not math.isfinite(self.reward):
            raise ValueError(f"reward must be finite, not {self.reward}")


class Task(ABC):
    """A family of episodes on one kind of page.

    Subclass it, name it in a manifest as ``module:Class`` (or register it in the entry-point group ``webgym.tasks``),
    and everything else is done for you: a browser, the observation, the actions. A task has no state of its own
    between episodes; one instance serves one browser.

    Args:
        **params: ``task.params`` of the manifest. Override ``__init__`` with named arguments to take some.
    """

    max_steps: ClassVar[int] = 16
    """Steps after which an episode is truncated, unless the manifest says otherwise."""
    viewport: ClassVar[tuple[int, int]] = (800, 600)
    """Width and height of the page, CSS pixels."""
    exclude: ClassVar[str] = ""
    """CSS selector of elements that the agent must not see (a scoreboard, the printed instruction)."""
    probe: ClassVar[str] = "null"
    """JavaScript expression, evaluated after each step in the same round trip; its JSON goes to :meth:`judge`, or None
    where it throws (the agent has left for a page that knows nothing of it); what it threw is told where :meth:`judge`
    cannot do with None."""
    over: ClassVar[str] = ""
    """JavaScript expression over ``probe`` that is true when :meth:`judge` will call the episode done; actors then save
    themselves a last look at the page. It must not throw. Left empty, they always look."""
    resets_in_page: bool = False
    """Whether :meth:`setup` deals an episode also on a page that was played on. Otherwise the page is loaded anew for
    each episode, its cookies and storage cleared."""

    skips_waits: bool = False
    """Whether the page's clock jumps over its own timers and animations, which run all the same, each at its time by
    that clock: for simulators, which depend on nothing outside. Real time is saved, and nothing else changes."""

    @abstractmethod
    def start_page(self, seed: int) -> str:
        """The URL at which the episode of this seed starts (``https:``, ``file:``, ``data:``)."""

    @abstractmethod
    def judge(self, probe: Json) -> Outcome:
        """Reward and end, from what :attr:`probe` said of the page."""

    def goal(self, seed: int) -> Goal | str:
        """The instruction of this seed's episode, for pages that do not carry their own (see :meth:`setup`)."""
        return ""

    def setup(self, seed: int) -> str:
        """JavaScript run once the page has loaded, to deal the episode of this seed.

        When it returns an object ``{goal, emphasised}``, that is the episode's goal; otherwise :meth:`goal` is.
        """
        return "null"

    def init_script(self) -> str:
        """JavaScript installed at document start in each page of the episode."""
        return ""

    @property
    def allowed_sites(self) -> tuple[str, ...]:
        """Hosts the page may talk to, for ``browser.egress: TaskSites``."""
        return ()

    @property
    def own_servers(self) -> tuple[str, ...]:
        """URLs of the task's own servers besides the start page's, which pages reach even at private addresses."""
        return ()


def js(value: Json) -> str:
    """A Python value as a JavaScript literal."""
    return json.dumps(value)
