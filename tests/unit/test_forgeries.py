"""Whatever a stranger sends or leaves on the disk, well formed or not, is taken whole or refused by the error that is
documented: never by another, never with more memory than it brought along.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webgym.errors import CheckpointError, ProtocolError
from webgym.protocol import (
    EpisodeTask,
    PackedParameters,
    TransitionBatch,
    pack_parameters,
    unpack_parameters,
)
from webgym.protocol import webgym_pb2 as pb
from webgym.queue.calls import QueueCalls
from webgym.run.snapshot import parse_snapshot
from webgym.schema import Schema
from webgym_learner.checkpoint import CheckpointStore, load_checkpoint

SCHEMA = Schema(nodes=2, node_features=3, texts=1, text_features=2, pair_features=1, goal_features=2)
EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

uint32 = st.integers(0, 5) | st.sampled_from([2**16, 2**31 - 1, 2**31, 2**32 - 1]) | st.integers(0, 2**32 - 1)
uint64 = uint32 | st.sampled_from([2**40, 2**53, 2**63, 2**64 - 1])
shapes = st.lists(uint32, max_size=10)
enum = st.integers(0, 9)
text = st.text(max_size=8) | st.just("x" * 300) | st.sampled_from(["\0", "\u202e", "a/b"])


@contextmanager
def little_memory(most: int = 64 << 20) -> Iterator[None]:
    """Fails where more than so many bytes are taken at once inside."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def tensors() -> dict[str, np.ndarray]:
    return {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "n": np.array(3, np.int64),
        "e": np.zeros((0, 2), np.uint8),
    }


@EXAMPLES
@given(st.data())
def test_forged_parameters(data: st.DataObject) -> None:
    packed = pack_parameters(
        5, 2, tensors(), "cafe", data.draw(st.sampled_from([8, 1 << 20])), half=data.draw(st.booleans())
    )
    envelope = pb.Envelope.FromString(packed.header)
    header = envelope.parameters
    chunks = [bytes(chunk) for chunk in packed.chunks]
    if data.draw(st.booleans()):
        chunks = data.draw(st.lists(st.binary(max_size=40), max_size=4))
        header.total_bytes, header.chunks = sum(map(len, chunks)), len(chunks)
        header.sha256 = hashlib.sha256(b"".join(chunks)).digest()
    for name in data.draw(st.sets(st.sampled_from(["version", "generation", "total_bytes"]))):
        setattr(header, name, data.draw(uint64))
    for entry in header.tensors:
        for name, values in {
            "name": text,
            "dtype": enum,
            "original": enum,
            "offset": uint64,
            "size": uint64,
        }.items():
            if data.draw(st.integers(0, 4)) == 0:
                setattr(entry, name, data.draw(values))
        if data.draw(st.integers(0, 2)) == 0:
            entry.shape[:] = data.draw(shapes)
            if data.draw(st.booleans()):
                entry.size = 0
    with little_memory():
        try:
            found = unpack_parameters(PackedParameters(envelope.SerializeToString(), chunks))
        except ProtocolError:
            return
    assert all(array.nbytes <= 2 * sum(map(len, chunks)) for array in found.state.values())


def batch() -> TransitionBatch:
    n = 2
    return TransitionBatch(
        episode="train-00000001", attempt=1, task="t", first_sequence=0, worker="w", generation=1,
        observations={name: np.zeros((n + 1, *spec.shape), spec.dtype) for name, spec in SCHEMA.fields().items()},
        obs_index=np.arange(n, dtype=np.int32), next_index=np.arange(1, n + 1, dtype=np.int32),
        action=np.zeros(n, np.int32), reward=np.zeros(n, np.float32), discount=np.ones(n, np.float32),
        priority=np.ones(n, np.float32), version=np.ones(n, np.int64),
    )  # fmt: skip


@EXAMPLES
@given(st.data())
def test_forged_transitions(data: st.DataObject) -> None:
    envelope = pb.Envelope.FromString(batch().encode(SCHEMA))
    body = envelope.transitions
    arrays = [entry.array for entry in body.observations]
    arrays += [getattr(body, name) for name in ("obs_index", "action", "reward", "version")]
    for array in data.draw(st.lists(st.sampled_from(range(len(arrays))), max_size=4)):
        forged = arrays[array]
        for name, values in {"dtype": enum, "packing": enum, "data": st.binary(max_size=64)}.items():
            if data.draw(st.booleans()):
                setattr(forged, name, data.draw(values))
        if data.draw(st.booleans()):
            forged.shape[:] = (
                [data.draw(uint32), *list(forged.shape)[1:]]
                if data.draw(st.booleans())
                else data.draw(shapes)
            )
    if data.draw(st.integers(0, 3)) == 0:
        body.first_sequence, body.attempt = data.draw(uint64), data.draw(uint32)
        body.episode, body.worker = data.draw(text), data.draw(text)
    with little_memory():
        try:
            found = TransitionBatch.decode(envelope.SerializeToString(), SCHEMA)
        except ProtocolError:
            return
    found.validate(SCHEMA)


DEEP = ["[" * 100_000, '{"a":' * 50_000, "1" * 5000, "NaN", "-Infinity", "1e999"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@EXAMPLES
@given(st.text(max_size=30) | json_values.map(json.dumps) | st.sampled_from([*DEEP, "[" * 30_000]))
def test_forged_params_of_a_task(params: str) -> None:
    envelope = pb.Envelope.FromString(EpisodeTask("train-1", "t", seed=1).encode())
    envelope.task.params_json = params
    try:
        found = EpisodeTask.decode(envelope.SerializeToString())
    except ProtocolError:
        return
    assert isinstance(found.params, dict)


# --- what is read from Redis as JSON ---

texts = json_values.map(json.dumps) | st.text(max_size=10) | st.sampled_from(DEEP)
blobs = texts.map(lambda text: text.encode(errors="surrogatepass")) | st.binary(max_size=10)


@EXAMPLES
@given(st.dictionaries(st.sampled_from([b"worker-0", b"phase", b"loss"]), blobs), blobs)
def test_forged_signs_of_life(fields: dict[bytes, bytes], notice: bytes) -> None:
    found = parse_snapshot(fields, fields, fields, fields, [notice])
    assert math.isfinite(sum(found.numbers.values()))
    assert found.browsers >= 0 or found.members


@EXAMPLES
@given(
    st.fixed_dictionaries(
        {},
        optional={
            b"kind": st.sampled_from([b"dead", b"done"]),
            b"episode": blobs,
            b"attempt": blobs | st.just(b"9" * 5000),
            b"summary": blobs,
            b"task": blobs,
            b"reasons": blobs
            | st.lists(json_values, max_size=2).map(lambda found: json.dumps(found).encode()),
        },
    )
)
def test_forged_results(fields: dict[bytes, bytes]) -> None:
    [found] = QueueCalls.results([(b"1-0", fields)])
    assert found.dead is not None or found.error


# --- checkpoints ---

ARRAYS = {"learner": {"w": np.ones((2, 3), np.float32)}, "acting": {"n": np.array(1)}}


def sign(path: Path, **forged: Any) -> None:
    """Make all sizes and checksums right again, as an attacker would."""
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["sha256"]
    for file in manifest["files"]:
        content = (path / file).read_bytes()
        manifest["files"][file] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest |= forged
    manifest["sha256"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return CheckpointStore(tmp_path_factory.mktemp("forged"), SCHEMA.hash).save(1, ARRAYS, {"updates": 1})


def taken_or_refused(path: Path) -> None:
    with little_memory():
        try:
            found = load_checkpoint(path)
        except CheckpointError:
            return
    assert isinstance(found.state, dict)


@EXAMPLES
@given(
    st.sampled_from(["files", "empty", "step", "schema", "format", "time"]),
    json_values | st.fixed_dictionaries({"learner.npz": json_values, "state.json": json_values}),
)
def test_forged_manifests(saved: Path, name: str, value: Any) -> None:
    kept = (saved / "manifest.json").read_bytes()
    try:
        sign(saved, **{name: value})
        taken_or_refused(saved)
    finally:
        (saved / "manifest.json").write_bytes(kept)


literals = st.text("(){}[],:'<>|fiuOVSMb0123456789-+.eE \\n#\"L", max_size=60)
headers = literals | st.builds(
    "{{'descr': {}, 'fortran_order': {}, 'shape': {}}}".format,
    st.sampled_from(
        [
            "'<f4'",
            "'|O'",
            "'|V9'",
            "'<U0'",
            "'S0'",
            "'<M8[s]'",
            "[('a', '<f4', (9, 9))]",
            "[]",
            "'f', 'f'",
            "('<f4', (999999, 999999))",
        ]
    )
    | literals,
    st.sampled_from(["True", "False", "None", "2"]),
    st.sampled_from(
        [
            "()",
            "(2, 3)",
            "(-2, -3)",
            "(0, 9**99)",
            "(0, 99999999999999999999)",
            "(2**70,)",
            "(True,)",
            "(1.5,)",
            "[6]",
        ]
    ),
)


@EXAMPLES
@given(headers, st.sampled_from([b"\1\0", b"\2\0", b"\3\0"]), st.binary(max_size=30), st.booleans())
def test_forged_arrays(saved: Path, header: str, version: bytes, content: bytes, lie: bool) -> None:
    text = header.encode() + b"\n"
    size = (
        (2**32 - 1 if lie else len(text)).to_bytes(4, "little")
        if version != b"\1\0"
        else len(text).to_bytes(2, "little")
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("w.npy", b"\x93NUMPY" + version + size + text + content)
    (saved / "learner.npz").write_bytes(file.getvalue())
    sign(saved)
    taken_or_refused(saved)


@EXAMPLES
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 10**6),
)
def test_forged_archives(saved: Path, changes: list[tuple[int, int]], cut: int) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("w.npy", b"\x93NUMPY\1\0\2\0\n\n")
    data = bytearray(file.getvalue())
    for position, value in changes:
        data[position % len(data)] = value
    (saved / "learner.npz").write_bytes(bytes(data[: len(data) - cut % 40]))
    sign(saved)
    taken_or_refused(saved)


@EXAMPLES
@given(blobs)
def test_forged_states(saved: Path, state: bytes) -> None:
    (saved / "state.json").write_bytes(state)
    sign(saved)
    taken_or_refused(saved)
