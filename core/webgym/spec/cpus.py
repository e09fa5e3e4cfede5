"""Sets of CPU cores in the syntax of taskset and of cpuset: ``0-15,16-31``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

__all__ = ["CpuSet"]

PATTERN = r"^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$"
_MOST_CPUS = 8192  # the kernel's NR_CPUS limit


class CpuSet:
    """CPU cores, in groups as they were written; iterates over the cores in ascending order.

    The groups matter to whoever spreads processes: each process is bound to one group, so that it stays on
    one socket when the groups are the sockets.
    """

    __slots__ = ("_text", "groups")

    groups: tuple[tuple[int, ...], ...]

    def __init__(self, text: str) -> None:
        """Parse ``0-15,16-31`` into the groups (0..15) and (16..31).

        Raises:
            ValueError: the text is no such list, a range runs backwards, or a core is named twice.
        """
        if re.fullmatch(PATTERN, text) is None:
            raise ValueError(f"{text[:40]!r} is no list of cores such as 0-15,16-31")
        groups: list[tuple[int, ...]] = []
        seen: set[int] = set()
        for part in text.split(","):
            first, _, last = part.partition("-")
            group = tuple(range(int(first), int(last or first) + 1))
            if not group:
                raise ValueError(f"the range {part} runs backwards")
            if group[-1] >= _MOST_CPUS:
                raise ValueError(f"core {group[-1]} is above {_MOST_CPUS - 1}")
            twice = seen.intersection(group)
            if twice:
                raise ValueError(f"core {min(twice)} is named twice")
            seen.update(group)
            groups.append(group)
        self._text = text
        self.groups = tuple(groups)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(core for group in self.groups for core in group))

    def __len__(self) -> int:
        return sum(map(len, self.groups))

    def __contains__(self, core: object) -> bool:
        return any(core in group for group in self.groups)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"CpuSet({self._text!r})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, CpuSet):
            return self.groups == other.groups
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.groups)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        def validate(value: object) -> CpuSet:
            if isinstance(value, CpuSet):
                return value
            if not isinstance(value, str):
                raise PydanticCustomError("cpu_set", 'expected a text such as "0-15,16-31", in quotes')
            try:
                return cls(value)
            except ValueError as error:
                raise PydanticCustomError("cpu_set", "{error}", {"error": str(error)}) from error

        return core_schema.no_info_plain_validator_function(
            validate, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "pattern": PATTERN, "maxLength": 256}
