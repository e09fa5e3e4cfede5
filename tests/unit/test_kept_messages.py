"""Messages that earlier versions wrote stay readable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from messages import SMALL, STATE, SUMMARY, TASK, assert_same, make_batch

from webgym.protocol import EpisodeSummary, EpisodeTask, PackedParameters, TransitionBatch
from webgym.protocol import webgym_pb2 as pb
from webgym.protocol.parameters import pack_parameters, unpack_parameters

DATA = Path(__file__).parent / "data"


# --- messages of earlier versions ---------------------------------------------------------------------------


def golden() -> dict[str, bytes]:
    """Messages of this version, as kept in tests/unit/data. Never write them anew for an old version."""
    packed = pack_parameters(5, 2, STATE, SMALL.hash)
    halved = pack_parameters(5, 2, STATE, SMALL.hash, half=True)
    return {
        "transitions-v1": make_batch().encode(SMALL),
        "task-v1": TASK.encode(),
        "summary-v1": SUMMARY.encode(),
        "parameters-header-v1": packed.header,
        "parameters-chunk-v1": b"".join(bytes(c) for c in packed.chunks),
        "transitions-packed": make_batch(replace(SMALL, frame=(6, 5, 3))).encode(
            replace(SMALL, frame=(6, 5, 3))
        ),
        "parameters-half-header": halved.header,
        "parameters-half-chunk": b"".join(bytes(c) for c in halved.chunks),
    }


def kept(name: str) -> bytes:
    return (DATA / f"{name}.bin").read_bytes()


def test_messages_of_version_1_stay_readable() -> None:
    assert EpisodeTask.decode(kept("task-v1")) == TASK
    assert EpisodeSummary.decode(kept("summary-v1")) == SUMMARY
    # The wire is under test, not the schema, whose hash changes with every feature.
    schema = replace(SMALL)
    schema.__dict__["hash"] = pb.Envelope.FromString(kept("transitions-v1")).schema_hash
    assert_same(TransitionBatch.decode(kept("transitions-v1"), schema), make_batch())
    found = unpack_parameters(PackedParameters(kept("parameters-header-v1"), [kept("parameters-chunk-v1")]))
    assert found.version == 5
    for name, array in STATE.items():
        np.testing.assert_array_equal(found.state[name], array)


def test_packed_messages_stay_readable() -> None:
    """Those that were written since arrays are packed and parameters halved, still of version 1."""
    framed = replace(SMALL, frame=(6, 5, 3))
    framed.__dict__["hash"] = TransitionBatch.schema_hash(kept("transitions-packed"))
    assert_same(TransitionBatch.decode(kept("transitions-packed"), framed), make_batch(framed))
    found = unpack_parameters(
        PackedParameters(kept("parameters-half-header"), [kept("parameters-half-chunk")])
    )
    for name, array in STATE.items():
        np.testing.assert_array_equal(found.state[name], array)
        assert found.state[name].dtype == array.dtype
