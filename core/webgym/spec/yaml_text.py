"""Plain data as YAML that every reader takes the same way."""

from __future__ import annotations

import io
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import SafeRepresenter

__all__ = ["dump_yaml"]

_PLAIN = re.compile(r"[A-Za-z_/].*|\d{1,9}[KMGTPE]i")
_NOT_TEXT = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})


class _Representer(SafeRepresenter):
    """Quotes every text that a reader of YAML 1.1 or of 1.2 might take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def text(self, text: str) -> ScalarNode:
        plain = _PLAIN.fullmatch(text) and text.isprintable() and text.lower() not in _NOT_TEXT
        block = "\n" in text and all(line.isprintable() and line == line.strip() for line in text.split("\n"))
        style = "|" if block else None if plain else '"'
        node: ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", text, style=style)
        return node


_Representer.add_representer(str, _Representer.text)


def dump_yaml(data: Any) -> str:
    """YAML text of maps, lists, texts, numbers, booleans and None, in the order they have."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 2**16
    yaml.Representer = _Representer
    stream = io.StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()
