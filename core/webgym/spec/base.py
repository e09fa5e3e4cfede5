"""What every model of the spec shares: strictness, camelCase names, and rules that span fields.

A rule is written once, beside its model, in both of the languages that enforce it: as Python for `webgym
validate` and the operator, as CEL for the API server (``x-kubernetes-validations``). A test evaluates both
on the same specs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

__all__ = [
    "INT32_MAX",
    "INT64_MAX",
    "LABEL_NAME",
    "LABEL_VALUE",
    "ONE_LINE",
    "LabelName",
    "LabelValue",
    "Labels",
    "Rule",
    "SpecModel",
    "Text",
    "Whole",
]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def _integral(value: object) -> object:
    """A float without a fraction as an int, as the API server accepts it (``1e6`` in YAML is a float)."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    return value


Whole = BeforeValidator(_integral)
"""Last annotation of a whole number, behind its bounds: takes ``5`` and ``1e6``, but neither ``true`` nor ``"5"``."""

ONE_LINE = r"^[^\x00-\x1f\x7f]+$"
LABEL_NAME = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"

Text = Annotated[str, Field(min_length=1, max_length=1024, pattern=ONE_LINE)]
"""A short text that is not empty: a path, say, which no system takes with a zero in it."""

LabelName = Annotated[str, Field(max_length=317, pattern=LABEL_NAME)]
"""Name of a Kubernetes label, annotation or taint, with or without a prefix."""

LabelValue = Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)]
"""Value of a Kubernetes label or taint."""

Labels = Annotated[dict[LabelName, LabelValue], Field(max_length=64)]
"""A map of names to values, as Kubernetes labels and node selectors are."""


@dataclass(frozen=True)
class Rule:
    """A condition that spans fields of one model.

    Attributes:
        message: what is wrong and how to mend it; one line, the same in every place that enforces the rule.
        cel: the condition in the Common Expression Language, ``self`` being the model's object; None where
            CEL cannot say it, and then only Python and the operator enforce it.
        check: the same condition in Python, on the validated model; None for a rule about an update
            (``oldSelf``), which only a server that knows the old object can check.
        field: the Python path of the field to blame, dots between its parts; empty blames the whole object.
        on_field: the CEL rule belongs to the schema of `field` itself (``self`` is then the field's value).
    """

    message: str
    cel: str | None
    check: Callable[[Any], bool] | None
    field: str = ""
    on_field: bool = False


class SpecModel(BaseModel):
    """Base of all spec models: immutable, strict about types, and closed to unknown keys."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _null_means_absent(cls, data: object) -> object:
        """Drop keys whose value is null: the API server prunes them before it fills in defaults."""
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data

    @model_validator(mode="after")
    def _hold_rules(self) -> Self:
        broken = [rule for rule in type(self).rules if rule.check is not None and not rule.check(self)]
        if broken:
            # One pydantic error can carry several broken rules; webgym.manifest takes them apart again.
            raise PydanticCustomError(
                "rules",
                "{message}",
                {"message": "; ".join(rule.message for rule in broken), "rules": broken},
            )
        return self
