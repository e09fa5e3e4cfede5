"""What is practised: tasks by name, weighted against each other."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue
from pydantic_core import PydanticCustomError

from webgym.spec.base import SpecModel, Whole
from webgym.spec.secrets import literal_secrets

__all__ = ["TaskSpec"]


def _json_object(params: dict[str, Any]) -> dict[str, Any]:
    secrets = literal_secrets(params)
    if secrets:
        raise PydanticCustomError(
            "literal_secret",
            "{path} holds a password inside a URL; manifests are written out, so pass it by environment",
            {"path": ".".join(map(str, secrets[0]))},
        )
    return params


class TaskSpec(SpecModel):
    """One task and how often it is practised."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=200,
            pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_.]*)?$",
        ),
    ]
    """Which task: a registered name such as `miniwob.click-button` (`webgym tasks` lists them), the entry
    point of a package that brings tasks, or `module:Class` of your own."""
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """How often this task is practised, relative to the weights of the others; learning progress shifts that
    (`learner.curriculum`). Validation rounds and evaluations go by weight alone."""
    params: Annotated[dict[str, JsonValue], Field(max_length=64), AfterValidator(_json_object)] = Field(
        default_factory=dict
    )
    """Parameters that the task takes, by name. They are written out in the clear: no secrets here."""
    max_steps: Annotated[int, Field(ge=1, le=10_000), Whole] | None = None
    """Actions until an episode is truncated. Left out: the task's own default. More lets the agent explore
    longer and makes hopeless episodes cost more."""
    priority: Annotated[int, Field(ge=-1000, le=1000), Whole] = 0
    """Episodes of a higher priority are played first; among equals the weights decide."""
