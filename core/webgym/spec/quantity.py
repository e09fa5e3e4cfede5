"""Quantities as Kubernetes writes them: ``2Gi``, ``500m``, ``1.5``, ``1e3``.

The grammar and the suffixes are those of ``k8s.io/apimachinery/pkg/api/resource``.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import total_ordering
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

__all__ = ["BytesQuantity", "CpuQuantity", "Quantity", "QuantityBounds"]

_NUMBER = r"[0-9]{1,19}|[0-9]{1,19}\.[0-9]{0,9}|\.[0-9]{1,9}"
_GRAMMAR = rf"({_NUMBER})(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]{{1,2}})?"
PATTERN = f"^{_GRAMMAR}$"
_PARSE = re.compile(_GRAMMAR)

_SUFFIXES: dict[str, Decimal] = {
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("n", "u", "m"), start=-3)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{
        suffix: Decimal(1024) ** power
        for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)
    },
}


@total_ordering
class Quantity:
    """An amount, equal to and ordered with every other spelling of it: ``1Gi == 1024Mi``.

    ``int(q)`` rounds up to whole units (bytes, cores), as Kubernetes does; ``float(q)`` does not round.
    """

    __slots__ = ("_text", "_value")

    def __init__(self, text: str | int) -> None:
        """Parse a quantity.

        Raises:
            ValueError: the text is no quantity, is negative, or is above 2**63 - 1.
        """
        if isinstance(text, bool) or not isinstance(text, (str, int)):
            raise ValueError(f"{text!r} is no quantity")
        match = _PARSE.fullmatch(str(text))
        if match is None:
            raise ValueError(f"{str(text)[:40]!r} is no quantity such as 2Gi, 500m or 3")
        number, suffix = match[1], match[2] or ""
        # An E with digits behind it is an exponent; alone it is the suffix exa, Ei is exbi.
        exponent = suffix[1:] if suffix[:1] in ("e", "E") and suffix not in ("E", "Ei") else None
        value = Decimal(number) * (_SUFFIXES[suffix] if exponent is None else Decimal(10) ** int(exponent))
        if value > 2**63 - 1:
            raise ValueError(f"{text!r} is more than 2^63 - 1")
        self._text = str(text)
        self._value = value

    @property
    def value(self) -> Decimal:
        """The exact amount in units (bytes, cores)."""
        return self._value

    def __int__(self) -> int:
        return int(self._value.to_integral_value(rounding=ROUND_CEILING))

    def __float__(self) -> float:
        return float(self._value)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({self._text!r})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Quantity):
            return self._value == other._value
        return NotImplemented

    def __lt__(self, other: object) -> bool:
        if isinstance(other, Quantity):
            return self._value < other._value
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        def validate(value: object) -> Quantity:
            if isinstance(value, Quantity):
                return value
            if isinstance(value, float):
                # The API server's int-or-string refuses a float too; one manifest has to work in both places.
                raise PydanticCustomError("quantity", 'a fraction needs quotes: "{value}"', {"value": value})
            if isinstance(value, bool) or not isinstance(value, (str, int)):
                raise PydanticCustomError("quantity", "expected a quantity such as 2Gi, 500m or 3")
            try:
                return cls(value)
            except ValueError as error:
                raise PydanticCustomError("quantity", "{error}", {"error": str(error)}) from error

        return core_schema.no_info_plain_validator_function(
            validate, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        # The one use of anyOf that a structural schema allows with types in it.
        return {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": PATTERN,
            "maxLength": 32,
        }


class QuantityBounds:
    """Annotation that bounds a :class:`Quantity`, both ends included."""

    def __init__(self, least: str, most: str) -> None:
        self.least, self.most = Quantity(least), Quantity(most)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        def check(value: Quantity) -> Quantity:
            if not self.least <= value <= self.most:
                raise PydanticCustomError(
                    "quantity_range",
                    "must be from {least} to {most}, not {value}",
                    {"least": str(self.least), "most": str(self.most), "value": str(value)},
                )
            return value

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "x-webgym-bounds": f"{self.least} to {self.most}"}


BytesQuantity = Annotated[Quantity, QuantityBounds("1Mi", "64Ti")]
"""Memory or storage: at least a mebibyte, so that a forgotten suffix (``2`` for ``2Gi``) does not pass."""

CpuQuantity = Annotated[Quantity, QuantityBounds("1m", "1024")]
"""Cores."""
