"""What can be wrong with a manifest, one line each: where, which field, and how to mend it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from webgym.errors import ManifestError
from webgym.printable import printable
from webgym.spec.base import LABEL_NAME, LABEL_VALUE, ONE_LINE
from webgym.spec.browser import LOCALE, TIME_ZONE
from webgym.spec.fields import FieldPath, near, suggest_key
from webgym.spec.pods import IMAGE
from webgym.spec.redis import HOST_NAME
from webgym.spec.secrets import NO_ZERO

__all__ = ["InvalidManifest", "Problem", "describe", "problems_of"]

_NOT_SHOWN = frozenset({"redis", "env", "params"})
"""Values below these keys are never quoted in a message: what was written there by mistake may be a
password."""

_PATTERN_WORDS = {
    ONE_LINE: "text on one line, without control characters",
    NO_ZERO: "text without the character zero",
    LABEL_NAME: "a name such as app or example.com/app, of letters, digits, hyphens, dots and underscores",
    LABEL_VALUE: "letters, digits, hyphens, dots and underscores, with a letter or digit at either end",
    IMAGE: "a container image such as ghcr.io/owner/name:1.0",
    HOST_NAME: "a host name or an address",
    LOCALE: "a language tag such as en, en-US, es-419 or zh-Hant-TW",
    TIME_ZONE: "an IANA time zone such as Europe/Vienna",
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": "lower-case letters, digits and hyphens, no hyphen at either end",
    r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$": "lower-case letters, digits, hyphens and dots",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "letters, digits and underscores, no digit first",
    r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_.]*)?$": "like miniwob.click-button or module:Class",
}


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a manifest.

    Attributes:
        where: ``run.yaml:12``, ``run.yaml``, or the ``--set`` option that brought the value.
        path: the full path of the field, ``spec.learner.batchSize``; empty for the document as a whole.
        message: what is wrong and how to mend it.
    """

    where: str
    path: str
    message: str

    def __str__(self) -> str:
        return printable(": ".join(part for part in (self.where, self.path, self.message) if part))


def _line(problem: Problem) -> int:
    """The line of a problem in its file; 0 for the file as a whole, beyond every line for an option."""
    if problem.where.startswith("--set "):
        return 2**31
    line = problem.where.rpartition(":")[2]
    return int(line) if line.isdigit() else 0


class InvalidManifest(ManifestError):
    """A manifest with problems; its line is the first of them, :attr:`problems` has all, in the file's
    order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=_line))
        more = len(self.problems) - 1
        rest = f" (and {more} more: `webgym validate` lists them all)" if more else ""
        super().__init__(f"{self.problems[0]}{rest}")


def describe(value: object) -> str:
    """A value as it is quoted in a message: short, on one line, in the terms of YAML."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    text = str(value)
    text = text if len(text) <= 40 else text[:37] + "..."
    return repr(text) if isinstance(value, str) else text


def _kind(value: object) -> str:
    """The kind of a value that must not be shown."""
    if isinstance(value, str):
        return "a text"
    return "a number" if isinstance(value, (int, float)) and not isinstance(value, bool) else describe(value)


def problems_of(error: ValidationError) -> list[tuple[FieldPath, str]]:
    """The (path, message) pairs of a pydantic error, in its order."""
    found: list[tuple[FieldPath, str]] = []
    for item in error.errors(include_url=False):
        path = tuple(part for part in item["loc"] if part != "[key]")
        # The task's two forms are told apart by a tag, which is no key of the manifest.
        if path[:2] == ("spec", "task") and path[2:3] in (("one",), ("list",)):
            path = path[:2] + path[3:]
        if item["type"] == "rules":
            for rule in item["ctx"]["rules"]:
                field = tuple(to_camel(part) for part in rule.field.split(".") if part)
                found.append(((*path, *field), rule.message))
        else:
            found.append((path, _message(path, item)))
    return found


def _message(path: FieldPath, item: Any) -> str:
    context: dict[str, Any] = item.get("ctx", {})
    value = item.get("input")
    shown = _kind(value) if _NOT_SHOWN.intersection(map(str, path)) else describe(value)
    match item["type"]:
        case "extra_forbidden":
            return f"unknown key; {suggest_key(path)}"
        case "missing":
            return "is missing"
        case "int_type" | "int_parsing" | "int_from_float" | "int_parsing_size":
            return f"expected a whole number, not {shown}"
        case "float_type" | "float_parsing":
            return f"expected a number, not {shown}"
        case "finite_number":
            return "expected a finite number"
        case "bool_type" | "bool_parsing":
            return f"expected true or false, not {shown}"
        case "string_type":
            quote = isinstance(value, (bool, int, float))
            return f"expected a text, not {shown}{'; put it in quotes' if quote else ''}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"expected a map, not {shown}"
        case "list_type":
            return f"expected a list, not {shown}"
        case "literal_error":
            return _not_among(context["expected"], value, shown)
        case "greater_than":
            return f"must be above {context['gt']:g}, not {shown}"
        case "greater_than_equal":
            return f"must be at least {context['ge']}, not {shown}"
        case "less_than_equal":
            return f"must be at most {context['le']}, not {shown}"
        case "string_too_short":
            return "must not be empty"
        case "string_too_long":
            return f"is longer than {context['max_length']} characters"
        case "string_pattern_mismatch":
            pattern = context["pattern"]
            return f"must be {_PATTERN_WORDS.get(pattern, f'text that matches {pattern}')}, not {shown}"
        case "too_short":
            return "must not be empty"
        case "too_long":
            return f"has more than {context['max_length']} entries"
        case _:
            message: str = item["msg"]
            return message


def _not_among(expected: str, value: object, shown: str) -> str:
    options = re.findall(r"'([^']*)'", expected)
    hint = near(value, options) if isinstance(value, str) else None
    listed = ", ".join(options[:-1]) + " or " + options[-1] if len(options) > 1 else options[0]
    return f"must be {listed}, not {shown}" + (f"; did you mean {hint}?" if hint else "")
