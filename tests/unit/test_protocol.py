"""Tasks and summaries on the wire, and messages of any kind that are truncated, noise, or of another version."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import SMALL, SUMMARY, TASK, make_batch

from webgym.errors import ProtocolError
from webgym.protocol import EpisodeSummary, EpisodeTask, TransitionBatch
from webgym.protocol import webgym_pb2 as pb


def test_another_protocol_version_is_refused_with_both() -> None:
    envelope = pb.Envelope.FromString(TASK.encode())
    envelope.protocol_version = 41
    with pytest.raises(ProtocolError, match=r"41.*speaks 1"):
        EpisodeTask.decode(envelope.SerializeToString())


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
