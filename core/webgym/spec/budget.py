"""When a run stops, and how its result is judged."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from webgym.spec.base import INT64_MAX, Rule, SpecModel, Whole

__all__ = ["Evaluation", "Stop"]


class Stop(SpecModel):
    """When training ends: at whichever limit comes first."""

    steps: Annotated[int, Field(ge=1, le=INT64_MAX), Whole] | None = None
    """Environment steps over all browsers."""
    seconds: Annotated[int, Field(ge=1, le=31_536_000), Whole] | None = None
    """Seconds of training, from the first environment step and without the time that the run was
    suspended."""
    success: Annotated[float, Field(gt=0, le=1)] | None = None
    """Success rate, from 0 to 1, of the agent acting greedily on seeds never trained on, over the last
    `window` such episodes. Ends training early, so it needs `steps` or `seconds` beside it."""
    window: Annotated[int, Field(ge=1, le=100_000), Whole] = 200
    """Episodes that `success` is measured over. More is surer and later."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            message="give steps or seconds: without one of them training might never end",
            cel="has(self.steps) || has(self.seconds)",
            check=lambda self: self.steps is not None or self.seconds is not None,
        ),
    )


class Evaluation(SpecModel):
    """How the trained agent is judged: greedily, on seeds that training never uses."""

    episodes: Annotated[int, Field(ge=0, le=1_000_000), Whole] = 200
    """Episodes of the final evaluation, shared among the tasks; 0 skips it. 200 tell 0.99 from 0.95."""
    baseline: bool = True
    """Whether the untrained network is evaluated too: some tasks fall to it by chance, and a result means
    little without saying so."""
    validation_share: Annotated[float, Field(ge=0, le=0.5)] = 0.1
    """Share of the episodes during training that are played greedily on held-out seeds. They draw the
    learning curve and decide `stop.success`, and teach nothing."""
    seconds: Annotated[int, Field(ge=1, le=86_400), Whole] = 600
    """Longest time for the final evaluation, in seconds; episodes finished by then are counted."""
    film: bool = True
    """Whether the report shows a film strip of an evaluation episode."""
