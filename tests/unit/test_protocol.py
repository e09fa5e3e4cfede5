"""The wire: what is written is read back, and what was truncated or forged is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webgym.errors import ProtocolError, SchemaMismatch
from webgym.protocol import EpisodeSummary, EpisodeTask, PackedParameters, TransitionBatch
from webgym.protocol import webgym_pb2 as pb
from webgym.protocol.parameters import pack_parameters, unpack_parameters
from webgym.schema import Schema

DATA = Path(__file__).parent / "data"
SMALL = Schema(nodes=3, node_features=4, texts=2, text_features=3, pair_features=2, goal_features=5)


def make_batch(schema: Schema = SMALL, n: int = 4, seed: int = 0) -> TransitionBatch:
    """n one-step transitions over n + 1 observations, features on the grid of 1/256."""
    rng = np.random.default_rng(seed)
    observations = {}
    for name, spec in schema.fields().items():
        shape = (n + 1, *spec.shape)
        if spec.dtype == np.float32:
            observations[name] = (rng.integers(0, 257, shape) / 256).astype(np.float32)
        else:
            observations[name] = rng.integers(0, 2, shape).astype(np.uint8)
    return TransitionBatch(
        episode="train-000042",
        attempt=2,
        task="miniwob.click-button",
        first_sequence=7,
        worker="worker-0",
        generation=3,
        observations=observations,
        obs_index=np.arange(n, dtype=np.int32),
        next_index=np.arange(1, n + 1, dtype=np.int32),
        action=rng.integers(0, schema.actions, n).astype(np.int32),
        reward=rng.normal(size=n).astype(np.float32),
        discount=np.append(np.full(n - 1, 0.99), 0.0).astype(np.float32),
        priority=rng.random(n).astype(np.float32),
        version=np.arange(n, dtype=np.int64) + 2**40,
    )


TASK = EpisodeTask(
    episode="train-000042",
    task="miniwob.click-button",
    params={"level": 2, "words": ["a", "ü"]},
    seed=-5,
    purpose="evaluate",
    priority=-1.5,
    max_steps=10,
    version=9,
    record=True,
)
SUMMARY = EpisodeSummary(
    episode="train-000042",
    attempt=2,
    task="miniwob.click-button",
    seed=12345678901,
    purpose="train",
    success=True,
    reward=0.75,
    steps=4,
    seconds=1.25,
    version=17,
    epsilon=0.05,
    worker="worker-0",
    outcome="fault",
    fault="the page crashed",
    staleness=2,
    invalid_actions=1,
)
STATE = {
    "encoder.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "encoder.bias": np.array([1, 2, 3], np.int64),
    "step": np.array(7, np.int32),
    "empty": np.zeros((0, 5), np.float32),
}


def assert_same(found: TransitionBatch, made: TransitionBatch) -> None:
    for name in ("episode", "attempt", "task", "first_sequence", "worker", "generation"):
        assert getattr(found, name) == getattr(made, name)
    for name in ("obs_index", "next_index", "action", "reward", "discount", "priority", "version"):
        np.testing.assert_array_equal(getattr(found, name), getattr(made, name))
        assert getattr(found, name).dtype == getattr(made, name).dtype
    unpacked = found.unpacked()
    assert unpacked.keys() == made.observations.keys()
    for name, array in made.observations.items():
        np.testing.assert_array_equal(unpacked[name], array)
        assert unpacked[name].dtype == array.dtype


def test_transitions_come_back_exactly() -> None:
    made = make_batch(Schema(), n=10)
    data = made.encode(Schema())
    found = TransitionBatch.decode(data, Schema())
    assert_same(found, made)
    assert found.observations["dom"].dtype == np.float16
    assert found.observations["action_mask"].dtype == np.uint8
    # Half of float32, plus little: the bytes are the arrays.
    assert len(data) < sum(a.nbytes for a in made.observations.values()) * 0.6


def test_frames_travel_as_bytes_when_they_are_on() -> None:
    schema = replace(SMALL, frame=(6, 5, 3))
    made = make_batch(schema)
    made.observations["frame"][:] = np.arange(90, dtype=np.uint8).reshape(6, 5, 3)
    assert_same(TransitionBatch.decode(made.encode(schema), schema), made)
    with pytest.raises(SchemaMismatch):
        TransitionBatch.decode(made.encode(schema), SMALL)


def test_what_is_decoded_is_read_only_and_what_travelled_raw_is_not_copied() -> None:
    made = make_batch()
    made.observations["dom"][:] = 0.3  # No multiple of 1/256: travels as float16.
    found = TransitionBatch.decode(made.encode(SMALL), SMALL)
    assert not any(array.flags.writeable for array in found.observations.values())
    assert not found.observations["dom"].flags.owndata


def test_any_memory_layout_can_be_sent() -> None:
    made = make_batch()
    odd = replace(
        made,
        observations={
            **made.observations,
            "dom": np.asfortranarray(made.observations["dom"]),
        },
        obs_index=np.repeat(made.obs_index, 2)[::2],
    )
    assert_same(TransitionBatch.decode(odd.encode(SMALL), SMALL), made)


def test_float16_features_are_sent_as_they_are() -> None:
    made = make_batch()
    half = replace(made, observations=TransitionBatch.decode(made.encode(SMALL), SMALL).observations)
    assert half.encode(SMALL) == made.encode(SMALL)


def test_a_part_keeps_its_sequence_numbers() -> None:
    part = make_batch().part(1, 3)
    assert (part.first_sequence, len(part)) == (8, 2)
    found = TransitionBatch.decode(part.encode(SMALL), SMALL)
    np.testing.assert_array_equal(found.obs_index, [1, 2])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"obs_index": np.array([0, 1, 2, 5], np.int32)}, "obs_index"),
        ({"next_index": np.array([0, 1, 2, -1], np.int32)}, "next_index"),
        ({"action": np.full(4, SMALL.actions, np.int32)}, "action"),
        ({"reward": np.array([0, np.nan, 0, 0], np.float32)}, "reward"),
        ({"priority": np.array([0, -1, 0, 0], np.float32)}, "priority"),
        ({"priority": np.array([0, np.inf, 0, 0], np.float32)}, "priority"),
        ({"discount": np.array([0, 1.5, 0, 0], np.float32)}, "discount"),
        ({"version": np.array([0, 1, -2, 0], np.int64)}, "version"),
        ({"reward": np.zeros(3, np.float32)}, "reward"),
        ({"reward": np.zeros(4, np.float64)}, "reward"),
        ({"episode": ""}, "episode"),
        ({"episode": "a\nb"}, "episode"),
        ({"worker": "w" * 300}, "worker"),
        ({"first_sequence": -1}, "sequence"),
    ],
)
def test_wrong_columns_are_refused_by_name(change: dict[str, object], named: str) -> None:
    with pytest.raises(ProtocolError, match=named):
        replace(make_batch(), **change).encode(SMALL)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dom", np.full((5, 3, 4), np.nan, np.float32)),
        ("dom", np.full((5, 3, 4), np.inf, np.float16)),
        ("text", np.zeros((4, 2, 3), np.float32)),
        ("dom", np.zeros((5, 3, 4), np.float64)),
        ("node_mask", np.full((5, 3), 2, np.uint8)),
        ("goal", np.zeros((5, 4), np.float32)),
    ],
)
def test_wrong_observations_are_refused_by_name(name: str, value: np.ndarray) -> None:
    made = make_batch()
    with pytest.raises(ProtocolError, match=name):
        replace(made, observations={**made.observations, name: value}).encode(SMALL)


def test_a_float_beyond_float16_is_refused_by_the_reader() -> None:
    made = make_batch()
    huge = replace(made, observations={**made.observations, "goal": np.full((5, 5), 1e30, np.float32)})
    with pytest.raises(ProtocolError, match="goal"), np.errstate(over="ignore"):
        TransitionBatch.decode(huge.encode(SMALL), SMALL)


def forge(data: bytes, change: str) -> bytes:
    envelope = pb.Envelope.FromString(data)
    body = envelope.transitions
    dom = next(entry for entry in body.observations if entry.name == "dom")
    if change == "shape":
        dom.array.shape[0] += 1
    elif change == "shape overflow":
        # 2**32 * 2**32 * ... wraps to 0 in 64 bits.
        del dom.array.shape[:]
        dom.array.shape.extend([2**31, 2**31, 4])
        dom.array.data = b""
    elif change == "dtype":
        dom.array.dtype = pb.DTYPE_INT64
    elif change == "unknown dtype":
        dom.array.dtype = 99  # type: ignore[assignment]
    elif change == "packing":
        dom.array.packing = 7  # type: ignore[assignment]
    elif change == "twice":
        body.observations.append(dom)
    elif change == "missing":
        body.observations.remove(dom)
    elif change == "unknown field":
        dom.name = "eval"
    elif change == "short data":
        dom.array.data = dom.array.data[:-1]
    elif change == "index":
        body.obs_index.data = np.array([0, 1, 2, 1000], "<i4").tobytes()
    elif change == "float":
        body.reward.data = np.array([0, 1, np.nan, 0], "<f4").tobytes()
    elif change == "empty":
        body.ClearField("action")
    elif change == "version":
        envelope.protocol_version = 2
    return envelope.SerializeToString()


@pytest.mark.parametrize(
    "change",
    [
        "shape",
        "shape overflow",
        "dtype",
        "unknown dtype",
        "packing",
        "twice",
        "missing",
        "unknown field",
        "short data",
        "index",
        "float",
        "empty",
        "version",
    ],
)
def test_forged_transitions_are_refused(change: str) -> None:
    data = make_batch().encode(SMALL)
    assert forge(data, "nothing") == data
    with pytest.raises(ProtocolError):
        TransitionBatch.decode(forge(data, change), SMALL)


def test_another_schema_is_refused_with_both_hashes() -> None:
    other = replace(SMALL, nodes=4)
    with pytest.raises(SchemaMismatch) as caught:
        TransitionBatch.decode(make_batch().encode(SMALL), other)
    assert SMALL.hash in str(caught.value)
    assert other.hash in str(caught.value)


def test_another_protocol_version_is_refused_with_both() -> None:
    envelope = pb.Envelope.FromString(TASK.encode())
    envelope.protocol_version = 41
    with pytest.raises(ProtocolError, match=r"41.*speaks 1"):
        EpisodeTask.decode(envelope.SerializeToString())


def test_an_oversized_message_is_refused_unread() -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return 2**40

    with pytest.raises(ProtocolError, match="at most"):
        TransitionBatch.decode(Long(), SMALL)


def test_one_kind_of_message_is_not_taken_for_another() -> None:
    with pytest.raises(ProtocolError, match="holds task where summary belongs"):
        EpisodeSummary.decode(TASK.encode())


@pytest.mark.parametrize("size", [0, 1, 10, 100, -1])
def test_truncated_messages_are_refused(size: int) -> None:
    with pytest.raises(ProtocolError):
        TransitionBatch.decode(make_batch().encode(SMALL)[:size], SMALL)
    with pytest.raises(ProtocolError):
        EpisodeTask.decode(TASK.encode()[:size])


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_noise_is_refused_and_nothing_else_happens(noise: bytes) -> None:
    for decode in (EpisodeTask.decode, EpisodeSummary.decode, lambda d: TransitionBatch.decode(d, SMALL)):
        with pytest.raises(ProtocolError):
            decode(noise)


@given(st.integers(0, 10**6), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_one_changed_byte_never_escapes_as_another_error(position: int, value: int) -> None:
    data = bytearray(make_batch().encode(SMALL))
    data[position % len(data)] = value
    try:
        found = TransitionBatch.decode(bytes(data), SMALL)
    except ProtocolError:
        return
    found.validate(SMALL)


def test_tasks_and_summaries_come_back() -> None:
    assert EpisodeTask.decode(TASK.encode(), attempt=3) == replace(TASK, attempt=3)
    assert EpisodeSummary.decode(SUMMARY.encode()) == SUMMARY
    plain = EpisodeTask("e", "t")
    assert EpisodeTask.decode(plain.encode()) == plain
    assert plain.max_steps is None


@pytest.mark.parametrize(
    "change",
    [
        {"priority": float("nan")},
        {"purpose": "play"},
        {"seed": 2**63},
        {"version": -1},
        {"max_steps": 0},
        {"params": {"x": float("inf")}},
        {"params": {"x": object()}},
        {"params": {"x": "y" * 100_000}},
        {"episode": ""},
        {"task": "t" * 1000},
    ],
)
def test_impossible_tasks_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        replace(TASK, **change).encode()


@pytest.mark.parametrize(
    "change",
    [
        {"reward": float("inf")},
        {"outcome": "won"},
        {"steps": -1},
        {"fault": "x" * 100_000},
        {"staleness": 2**32},
    ],
)
def test_impossible_summaries_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        replace(SUMMARY, **change).encode()


def test_unknown_enum_numbers_are_refused() -> None:
    envelope = pb.Envelope.FromString(TASK.encode())
    envelope.task.purpose = 99  # type: ignore[assignment]
    with pytest.raises(ProtocolError, match="purpose"):
        EpisodeTask.decode(envelope.SerializeToString())


def test_params_that_are_no_map_are_refused() -> None:
    envelope = pb.Envelope.FromString(TASK.encode())
    for text in ("[1]", "{", "[" * 50_000):
        envelope.task.params_json = text
        with pytest.raises(ProtocolError):
            EpisodeTask.decode(envelope.SerializeToString())


# --- parameters ---------------------------------------------------------------------------------------------


def test_parameters_come_back_in_any_number_of_chunks() -> None:
    for chunk_bytes in (1, 16, 1 << 20):
        packed = pack_parameters(5, 2, STATE, "cafe", chunk_bytes)
        found = unpack_parameters(packed, "cafe")
        assert (found.version, found.generation, found.schema_hash) == (5, 2, "cafe")
        assert list(found.state) == list(STATE)
        for name, array in STATE.items():
            np.testing.assert_array_equal(found.state[name], array)
            assert found.state[name].dtype == array.dtype
            assert found.state[name].shape == array.shape


def test_damaged_parameters_are_refused_by_version() -> None:
    packed = pack_parameters(5, 2, STATE, "cafe", 16)
    chunks = [bytes(c) for c in packed.chunks]
    flipped = [bytes([chunks[0][0] ^ 1]) + chunks[0][1:], *chunks[1:]]
    for bad in (flipped, chunks[:-1], [*chunks, b"more"], [chunks[1], chunks[0], *chunks[2:]]):
        with pytest.raises(ProtocolError, match="version 5"):
            unpack_parameters(PackedParameters(packed.header, bad))


def test_forged_parameter_headers_are_refused() -> None:
    packed = pack_parameters(5, 2, STATE, "cafe")
    for change in ("offset", "unaligned", "shape", "name", "dtype"):
        envelope = pb.Envelope.FromString(packed.header)
        entry = envelope.parameters.tensors[0]
        if change == "offset":
            entry.offset = 2**40
        elif change == "unaligned":
            entry.offset = 1
        elif change == "shape":
            entry.shape[0] = 2**31
        elif change == "name":
            envelope.parameters.tensors[1].name = entry.name
        else:
            entry.dtype = pb.DTYPE_FLOAT64
        with pytest.raises(ProtocolError, match="version 5"):
            unpack_parameters(PackedParameters(envelope.SerializeToString(), packed.chunks))


def test_parameters_that_diverged_are_not_published() -> None:
    with pytest.raises(ProtocolError, match="encoder"):
        pack_parameters(1, 1, {"encoder": np.array([np.nan], np.float32)}, "")


def test_half_precision_halves_the_bytes_and_gives_back_float32() -> None:
    rng = np.random.default_rng(0)
    state = {
        **STATE,
        "weight": rng.normal(size=(64, 64)).astype(np.float32),
        "large": np.array([1e5], np.float32),
    }
    whole, half = pack_parameters(1, 1, state, ""), pack_parameters(1, 1, state, "", half=True)
    assert sum(map(len, half.chunks)) < 0.51 * sum(map(len, whole.chunks))
    found = unpack_parameters(half).state
    for name, array in state.items():
        assert found[name].dtype == array.dtype
        assert not found[name].flags.writeable
        np.testing.assert_allclose(found[name], array, rtol=2**-11, atol=2**-25)
    # Beyond float16's range, and what is no float, it is exact.
    for name in ("large", "step", "encoder.bias"):
        np.testing.assert_array_equal(found[name], state[name])
    header = pb.Envelope.FromString(half.header)
    entry = next(t for t in header.parameters.tensors if t.name == "weight")
    assert (entry.dtype, entry.original) == (pb.DTYPE_FLOAT16, pb.DTYPE_FLOAT32)
    entry.original = pb.DTYPE_INT64
    with pytest.raises(ProtocolError, match="weight: float16 cannot stand for int64"):
        unpack_parameters(PackedParameters(header.SerializeToString(), half.chunks))


def test_objects_never_travel_in_parameters() -> None:
    with pytest.raises(ProtocolError, match="cannot be sent"):
        pack_parameters(1, 1, {"x": np.array([object()])}, "")


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
