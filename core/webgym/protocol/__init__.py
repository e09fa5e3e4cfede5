"""The wire: protobuf messages and the dataclasses that programs handle instead of them.

Whatever comes from the wire was possibly truncated, oversized or forged: decoding checks all of it and raises
:class:`webgym.errors.ProtocolError`. Arrays travel as little-endian bytes with dtype and shape, and are
decoded without a copy.
"""

from __future__ import annotations

from webgym.protocol.envelope import MAX_MESSAGE_BYTES, PROTOCOL_VERSION
from webgym.protocol.episodes import OUTCOMES, PURPOSES, EpisodeSummary, EpisodeTask, Outcome, Purpose
from webgym.protocol.parameters import PackedParameters, Parameters, pack_parameters, unpack_parameters
from webgym.protocol.transitions import WIRE_DTYPE, TransitionBatch, wire_dtype

__all__ = [
    "MAX_MESSAGE_BYTES",
    "OUTCOMES",
    "PROTOCOL_VERSION",
    "PURPOSES",
    "WIRE_DTYPE",
    "EpisodeSummary",
    "EpisodeTask",
    "Outcome",
    "PackedParameters",
    "Parameters",
    "Purpose",
    "TransitionBatch",
    "pack_parameters",
    "unpack_parameters",
    "wire_dtype",
]
