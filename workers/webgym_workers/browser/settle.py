"""Whether a page has come to rest: the script that tells, and how it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

__all__ = ["SKIP_WAITS", "Evaluation", "Settled", "settle_expression", "settle_script"]

SKIP_WAITS = "typeof __webgym_settle==='object'&&__webgym_settle.skipWaits()"
"""A script for :meth:`~webgym_workers.browser.page.Page.add_script`: the clock of the page's documents jumps over the
timers and animations that a settled reading would wait for; they run all the same, in their order. For pages that
depend on nothing outside themselves."""


@dataclass(frozen=True, slots=True)
class Settled:
    """How a page came to rest.

    Attributes:
        reason: ``quiet``, or ``budget`` when it was still changing as the time ran out.
        milliseconds: How long it took.
        background: Endless activities of this document that are no longer waited for, each because it
            outlived an earlier budget.
    """

    reason: Literal["quiet", "budget"]
    milliseconds: float
    background: int = 0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The value of an expression, read when the page was at rest (``settled``) or out of time."""

    value: Any
    settled: bool
    milliseconds: float
    background: int = 0


@cache
def settle_script() -> str:
    """The script to install at document start."""
    return files(__package__).joinpath("settle.js").read_text("utf-8")


def settle_expression(expression: str, budget: float, frames: int) -> str:
    """JavaScript that waits for rest, then evaluates ``expression``: [quiet, ms, background, value].

    A document that was there before the script (an error page, a tab's first blank page) counts as quiet.
    """
    settled = f"__webgym_settle.settle({budget * 1000:.0f},{frames},()=>({expression}))"
    return f"typeof __webgym_settle==='object'?{settled}:(async()=>[true,0,0,await ({expression})])()"
