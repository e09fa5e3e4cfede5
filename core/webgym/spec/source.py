"""YAML text to plain data, with the line of every key, and with everything refused that a manifest cannot
mean.

ruamel.yaml scans and composes; building the values is ours, because a manifest is JSON written as YAML:
keys are texts and unique, values are those of JSON, and what readers of YAML 1.1 (kubectl) and 1.2 would
understand differently is refused rather than guessed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from webgym.spec.fields import FieldPath, format_path
from webgym.spec.problems import InvalidManifest, Problem

__all__ = ["MOST_BYTES", "Source", "parse", "parse_value"]

MOST_BYTES = 256 * 1024
"""Largest manifest. The API server's own limit for annotations, and far above any real one."""
_MOST_VALUES = 20_000
"""Most values after aliases are expanded: a few hundred bytes of nested aliases can stand for billions."""
_DEEPEST = 64

_TOO_DEEP = f"is nested deeper than {_DEEPEST} levels, or an alias holds itself"

_TAG = "tag:yaml.org,2002:"


@dataclass
class Source:
    """A parsed document.

    Attributes:
        name: of the file, as the user wrote it.
        data: the values: maps, lists, texts, numbers, booleans and None.
        lines: the line, from 1, of each key and list element by its path.
        options: paths that ``--set`` gave, with the option's path as the user wrote it.
        problems: what the YAML says that a manifest cannot mean; `data` has a stand-in there.
    """

    name: str
    data: Any
    lines: dict[FieldPath, int] = field(default_factory=dict)
    options: dict[FieldPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def where(self, path: FieldPath) -> str:
        """The place of a path, or of the nearest thing above it that was written: ``run.yaml:12``."""
        for length in range(len(path), -1, -1):
            above = path[:length]
            if above in self.options:
                return f"--set {self.options[above]}"
            if above and above in self.lines:
                return f"{self.name}:{self.lines[above]}"
        return self.name

    def problem(self, path: FieldPath, message: str) -> Problem:
        """A problem of the value at a path."""
        return Problem(self.where(path), format_path(path), message)


def parse(text: str, name: str) -> Source:
    """Parse one YAML document.

    Raises:
        InvalidManifest: not YAML, several documents, empty, or too large. What is wrong with single values is in
            the result's `problems`.
    """
    node = _compose(text, name)
    if node is None:
        raise InvalidManifest([Problem(name, "", "is empty; a manifest starts with apiVersion and kind")])
    source = Source(name, None)
    source.data = _Builder(source).build(node, ())
    return source


def parse_value(text: str, option: str) -> Any:
    """Parse the value of a ``--set`` option; an empty one is None.

    Raises:
        InvalidManifest: the text is no YAML value; the message names the option and not the text.
    """
    node = _compose(text, f"--set {option}")
    if node is None:
        return None
    source = Source(f"--set {option}", None, options={(): option})
    value = _Builder(source).build(node, ())
    if source.problems:
        raise InvalidManifest(source.problems)
    return value


class _TooLarge(Exception):
    """Found while nodes are composed, before the rest of them costs more time."""


class _BoundedComposer(Composer):
    """Composes no more nodes, and none deeper, than a manifest can hold."""

    _depth = 0
    _count = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        self._count += 1
        # A key is a node as well as its value, and `_Builder` says more exactly what is too much.
        if self._count > 2 * _MOST_VALUES:
            raise _TooLarge(f"holds more than {_MOST_VALUES} values")
        if self._depth > _DEEPEST + 2:
            raise _TooLarge(_TOO_DEEP)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _compose(text: str, name: str) -> Node | None:
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _BoundedComposer
    try:
        node: Node | None = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = name if mark is None or name.startswith("--set") else f"{name}:{mark.line + 1}"
        if "another document" in str(error):
            message = "holds several documents (---); write one run per file"
        else:
            what = " ".join(str(error.problem or error.context or "cannot be parsed").split())
            message = f"is not YAML: {what}"
        raise InvalidManifest([Problem(where, "", message)]) from error
    except _TooLarge as error:
        raise InvalidManifest([Problem(name, "", str(error))]) from error
    except RecursionError as error:
        raise InvalidManifest([Problem(name, "", _TOO_DEEP)]) from error
    except (YAMLError, ValueError) as error:
        what = " ".join(str(error).split())[:120]
        raise InvalidManifest([Problem(name, "", f"is not YAML: {what}")]) from error
    return node


class _Builder:
    """Values from composed nodes; collects problems instead of stopping at the first."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._count = 0

    def build(self, node: Node, path: FieldPath) -> Any:
        self._count += 1
        if self._count > _MOST_VALUES or len(path) > _DEEPEST:
            what = (
                _TOO_DEEP
                if len(path) > _DEEPEST
                else f"holds more than {_MOST_VALUES} values once its aliases are expanded"
            )
            raise InvalidManifest([Problem(self.source.name, "", what)])
        if isinstance(node, MappingNode):
            return self._map(node, path)
        if isinstance(node, SequenceNode):
            return self._list(node, path)
        return self._scalar(node, path)

    def _problem(self, node: Node, path: FieldPath, message: str) -> None:
        name = self.source.name
        where = name if self.source.options else f"{name}:{node.start_mark.line + 1}"
        self.source.problems.append(Problem(where, format_path(path), message))

    def _list(self, node: SequenceNode, path: FieldPath) -> list[Any]:
        values = []
        for index, item in enumerate(node.value):
            self.source.lines[(*path, index)] = item.start_mark.line + 1
            values.append(self.build(item, (*path, index)))
        return values

    def _map(self, node: MappingNode, path: FieldPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        written: dict[str, int] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            if str(key_node.tag) == _TAG + "merge" or (
                isinstance(key_node, ScalarNode) and key_node.value == "<<" and key_node.style is None
            ):
                merged += value_node.value if isinstance(value_node, SequenceNode) else [value_node]
                continue
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self._problem(key_node, path, "a key must be a text, not a map or a list")
                continue
            key = key_node.value
            if str(key_node.tag) not in (_TAG + "str", _TAG + "timestamp"):
                self._problem(key_node, path, f"the key {key[:40]!r} is not a text; put it in quotes")
                continue
            if not _encodable(key):
                self._problem(key_node, path, f"the key {key[:40]!r} holds half of a surrogate pair")
                continue
            inner = (*path, key)
            if key in written:
                self._problem(key_node, inner, f"is given twice, on line {written[key]} too; keep one")
                continue
            written[key] = line
            self.source.lines[inner] = line
            values[key] = self.build(value_node, inner)
        for other in merged:
            if not isinstance(other, MappingNode):
                self._problem(other, path, "<< merges maps only")
                continue
            for key, value in self.build(other, path).items():
                values.setdefault(key, value)
        return values

    def _scalar(self, node: Node, path: FieldPath) -> Any:
        tag, text = str(node.tag), node.value
        if not _encodable(text):
            self._problem(node, path, "holds half of a surrogate pair, which is no character")
            return ""
        if tag in (_TAG + "str", _TAG + "timestamp", _TAG + "merge", _TAG + "value"):
            return text  # kubectl reads a timestamp as a text, too
        if tag == _TAG + "null":
            return None
        if tag == _TAG + "bool":
            return text.lower() in ("true", "yes", "on", "y")
        if tag == _TAG + "int":
            return self._integer(node, path, text)
        if tag == _TAG + "float":
            try:
                number = float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
            except ValueError:
                self._problem(node, path, f"{text[:40]!r} is no number; put it in quotes if it is a text")
                return None
            if not math.isfinite(number):
                self._problem(node, path, "expected a finite number")
            return number
        self._problem(node, path, f"has the tag {tag.replace(_TAG, '!!')}, which a manifest cannot hold")
        return None

    def _integer(self, node: Node, path: FieldPath, text: str) -> int:
        if re.fullmatch(r"[-+]?0[0-9_]+", text):
            # 010 is eight to kubectl (YAML 1.1) and ten to YAML 1.2.
            self._problem(
                node, path, "a number with leading zeros is ambiguous; drop them, or put it in quotes"
            )
            return 0
        try:
            # Python itself refuses to read thousands of digits.
            number = 2**63 if re.fullmatch(r"[-+]?[0-9_]{1000,}", text) else int(text.replace("_", ""), 0)
        except ValueError:
            self._problem(node, path, f"{text[:40]!r} is no number; put it in quotes if it is a text")
            return 0
        if abs(number) >= 2**63:
            self._problem(node, path, "the number does not fit into 64 bits")
            return 0
        return number


def _encodable(text: str) -> bool:
    r"""Whether the text can be written out: YAML's ``"\ud800"`` alone cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
