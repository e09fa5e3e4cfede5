"""The shared observation slots: what one process writes, the other reads, and nothing bleeds over."""

from __future__ import annotations

import os
import socket
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webgym.schema import Observation, Schema
from webgym_workers.slots import ObservationSlots, Reply, Request, channel, slot_dtype

SCHEMA = Schema(nodes=3, texts=2, node_features=4, text_features=2, pair_features=2, goal_features=5)


def observation(seed: int, schema: Schema = SCHEMA) -> Observation:
    rng = np.random.default_rng(seed)
    made = schema.empty()
    for array in made.values():
        array[...] = (rng.random(array.shape) * 255).astype(array.dtype)
    return made


@pytest.fixture(params=[None, (8, 6, 3)], ids=["dom", "frame"])
def schema(request: pytest.FixtureRequest) -> Schema:
    return Schema(nodes=3, texts=2, frame=request.param)


def test_two_mappings_of_one_file_see_the_same(schema: Schema) -> None:
    fd = ObservationSlots.create(schema, 5)
    try:
        actors, inference = ObservationSlots(schema, 5, fd), ObservationSlots(schema, 5, fd)
        written = {slot: observation(slot, schema) for slot in (4, 0, 2)}
        for slot, one in written.items():
            actors.write(slot, one)
        batch = inference.read([2, 4])
        assert list(batch) == list(schema.fields())
        for name, spec in schema.fields().items():
            assert batch[name].shape == (2, *spec.shape)
            assert batch[name].dtype == spec.dtype
            for row, slot in enumerate((2, 4)):
                assert np.array_equal(batch[name][row], written[slot][name])
        q = np.arange(2 * schema.actions, dtype=np.float32).reshape(2, -1)
        inference.write_q([2, 4], q)
        assert np.array_equal(actors.q(2), q[0])
        assert np.array_equal(actors.q(4), q[1])
        # Neither the observation nor other slots are touched by an answer.
        assert not actors.q(0).any()
        assert np.array_equal(actors.read([0])["dom"][0], written[0]["dom"])
        assert not any(a.any() for a in actors.read([1, 3]).values())
    finally:
        os.close(fd)


def test_what_is_read_is_a_copy() -> None:
    fd = ObservationSlots.create(SCHEMA, 1)
    slots = ObservationSlots(SCHEMA, 1, fd)
    os.close(fd)  # a mapping needs the descriptor no more
    first = observation(1)
    slots.write(0, first)
    slots.write_q([0], np.full((1, SCHEMA.actions), 7, np.float32))
    batch, q = slots.read([0]), slots.q(0)
    slots.write(0, observation(2))
    slots.write_q([0], np.zeros((1, SCHEMA.actions), np.float32))
    assert np.array_equal(batch["dom"][0], first["dom"])
    assert set(q) == {7.0}


def test_the_file_has_no_name_and_exactly_the_size_and_too_small_a_one_is_refused() -> None:
    fd = ObservationSlots.create(SCHEMA, 3)
    try:
        stat = os.fstat(fd)
        assert stat.st_nlink == 0
        assert stat.st_size == 3 * slot_dtype(SCHEMA).itemsize
        ObservationSlots(SCHEMA, 3, fd)
        with pytest.raises(ValueError, match="4 slots need"):
            ObservationSlots(SCHEMA, 4, fd)
    finally:
        os.close(fd)


def test_memory_outlives_the_process_that_wrote_it() -> None:
    fd = ObservationSlots.create(SCHEMA, 2)
    child = os.fork()
    if child == 0:
        try:
            ObservationSlots(SCHEMA, 2, fd).write(1, observation(9))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    slots = ObservationSlots(SCHEMA, 2, fd)
    os.close(fd)
    for name, array in observation(9).items():
        assert np.array_equal(slots.read([1])[name][0], array)


def test_fields_are_aligned_for_their_types() -> None:
    dtype = slot_dtype(SCHEMA)
    assert dtype.isalignedstruct
    assert dtype.fields is not None
    for name, spec in {**SCHEMA.fields(), "q": ((SCHEMA.actions,), np.dtype(np.float32))}.items():
        kind, offset = dtype.fields[name][:2]
        assert kind.shape == spec[0]
        assert offset % spec[1].alignment == 0


@given(st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.integers(-(2**63), 2**63 - 1))
def test_messages_come_back_as_they_were(slot: int, sequence: int, version: int) -> None:
    for kind in (Request, Reply):
        message = kind(slot, sequence, version)
        assert kind.unpack(message.pack()) == message
        assert type(kind.unpack(message.pack())) is kind


@pytest.mark.parametrize("data", [b"", b"short", b"x" * 64])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    for kind in (Request, Reply):
        with pytest.raises(struct.error):
            kind.unpack(data)


def test_a_channel_keeps_borders_and_order_and_what_nobody_has_read() -> None:
    ours, theirs = channel()
    with ours, theirs:
        for sequence in range(5):
            ours.send(Request(1, sequence, 0).pack())
        # A process that takes over from one that was killed has only the inherited descriptor.
        with socket.socket(fileno=os.dup(theirs.fileno())) as successor:
            assert [Request.unpack(successor.recv(256)).sequence for _ in range(5)] == [0, 1, 2, 3, 4]
            successor.send(Reply(1, 4, 9).pack())
        assert Reply.unpack(ours.recv(256)) == (1, 4, 9)
