"""What a network is made by, as plain values that can lie beside its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from webgym.errors import ProtocolError
from webgym.schema import Schema
from webgym_policy.network import PolicyNetwork

__all__ = ["described_network", "description_of"]

_SIZES = ("hidden_size", "dueling", "match_size", "fit_size")


def description_of(network: PolicyNetwork) -> dict[str, Any]:
    """All arguments of a network but its seed; fit for JSON."""
    schema = {field.name: getattr(network.schema, field.name) for field in fields(Schema) if field.init}
    return {"schema": schema, **{name: getattr(network, name) for name in _SIZES}}


def described_network(description: Mapping[str, Any]) -> PolicyNetwork:
    """A network of that description; its parameters are still to be loaded.

    Raises:
        ProtocolError: it does not describe a network.
    """
    try:
        sizes = dict(description["schema"])
        frame = sizes.get("frame")
        schema = Schema(**{**sizes, "frame": None if frame is None else tuple(map(int, frame))})
        return PolicyNetwork(schema, **{name: description[name] for name in _SIZES})
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ProtocolError(f"the description of the network cannot be read: {error}") from None
