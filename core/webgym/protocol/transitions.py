"""Transitions in columns: what an actor sends and the learner's replay stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webgym.errors import ProtocolError
from webgym.protocol import webgym_pb2 as pb
from webgym.protocol.arrays import array_from, is_finite, write_array
from webgym.protocol.envelope import MAX_MESSAGE_BYTES, check_schema, checked_name, open_envelope, seal
from webgym.schema import Observation, Schema

__all__ = ["MAX_TRANSITIONS", "WIRE_DTYPE", "TransitionBatch", "wire_dtype"]

MAX_TRANSITIONS = 100_000
"""Most transitions, and most observations, in one batch."""

WIRE_DTYPE = np.dtype(np.float16)
"""What float32 features travel and are stored as. Features are multiples of 1/256 in [0, 1]: exact in
float16."""

_MAX_INT64 = 2**63 - 1


def wire_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """What a field of :meth:`webgym.schema.Schema.fields` travels as: float32 halved, all else as it is."""
    return WIRE_DTYPE if dtype == np.float32 else dtype


class _Field(NamedTuple):
    """How one array of an observation travels."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    """What programs hold."""
    wire: np.dtype[np.generic]
    """What it is decoded as."""
    packing: pb.Packing


@cache
def _fields_of(schema: Schema) -> tuple[_Field, ...]:
    return tuple(
        _Field(name, spec.shape, spec.dtype, wire_dtype(spec.dtype), _packing(name, spec.dtype))
        for name, spec in schema.fields().items()
    )


def _packing(name: str, dtype: np.dtype[np.generic]) -> pb.Packing:
    if dtype == np.float32:
        return pb.PACKING_UNIT_BYTES
    return pb.PACKING_BITS if name.endswith("_mask") else pb.PACKING_XOR_ZLIB


@dataclass(frozen=True, eq=False)
class TransitionBatch:
    """Consecutive transitions of one episode: n of them, over M observations.

    Float features of a decoded batch are float16, whatever they travelled as; :meth:`unpacked` gives float32.
    """

    episode: str
    attempt: int
    task: str
    first_sequence: int
    """Sequence number of the first transition within (episode, attempt); the others follow without gaps."""
    worker: str
    generation: int
    """Generation of the learner whose parameters acted."""
    observations: Observation
    """By name, each (M, ...)."""
    obs_index: NDArray[np.int32]
    """int32 (n,): row of ``observations`` acted on."""
    next_index: NDArray[np.int32]
    """int32 (n,): row that the rest of the return is valued at; any valid row where ``discount`` is 0."""
    action: NDArray[np.int32]
    """int32 (n,): flat action (:class:`webgym.schema.Schema`)."""
    reward: NDArray[np.float32]
    """float32 (n,): discounted sum of the window's rewards."""
    discount: NDArray[np.float32]
    """float32 (n,): gamma to the window's length, 0 after termination."""
    priority: NDArray[np.float32]
    """float32 (n,): absolute TD error by the actor's parameters."""
    version: NDArray[np.int64]
    """int64 (n,): parameter version that chose the action."""

    def __len__(self) -> int:
        return len(self.action)

    @property
    def rows(self) -> int:
        """How many observations there are."""
        return len(next(iter(self.observations.values()))) if self.observations else 0

    def unpacked(self) -> Observation:
        """The observations with float16 features turned into float32, by name, each (M, ...)."""
        return {
            name: array.astype(np.float32) if array.dtype.itemsize == 2 else array
            for name, array in self.observations.items()
        }

    def part(self, start: int, stop: int) -> TransitionBatch:
        """Transitions ``start`` to ``stop``, over the same observations."""
        if (start, stop) == (0, len(self)):
            return self
        columns = {name: getattr(self, name)[start:stop] for name in _COLUMNS}
        return replace(self, first_sequence=self.first_sequence + start, **columns)

    def encode(self, schema: Schema) -> bytes:
        """Bytes for the wire.

        Raises:
            ProtocolError: a column or an observation does not fit the schema, or a value is not finite.
        """
        fields = _fields_of(schema)
        self._check_columns(schema)
        self._check_shapes(fields)
        envelope = pb.Envelope()
        body = envelope.transitions
        body.episode = self.episode
        body.attempt = self.attempt
        body.task = self.task
        body.first_sequence = self.first_sequence
        body.worker = self.worker
        body.generation = self.generation
        for field in fields:
            entry = body.observations.add()
            entry.name = field.name
            array = self.observations[field.name]
            write_array(entry.array, array, field.name, field.wire.newbyteorder("<").str, field.packing)
            if entry.array.packing == pb.PACKING_RAW:  # What could be packed has values that can be packed.
                _check_values(field.name, array)
        for name, dtype in _COLUMNS.items():
            write_array(getattr(body, name), getattr(self, name), name, dtype.newbyteorder("<").str)
        return seal(envelope, schema.hash)

    @classmethod
    def decode(cls, data: bytes, schema: Schema) -> TransitionBatch:
        """A batch from the wire, every value checked.

        Raises:
            SchemaMismatch: it was written for another schema.
            ProtocolError: anything else is wrong with it.
        """
        envelope = open_envelope(data, "transitions")
        check_schema(envelope.schema_hash, schema.hash, "transitions")
        body = envelope.transitions
        arrays = {entry.name: entry.array for entry in body.observations}
        fields = _fields_of(schema)
        names = {field.name for field in fields}
        if arrays.keys() != names or len(arrays) != len(body.observations):
            raise ProtocolError(
                f"transitions: observation fields {sorted(arrays)[:20]}; expected {sorted(names)}"
            )
        observations: Observation = {}
        rows: int | None = None  # The first array says how many there are; all others must agree.
        for field in fields:
            array = array_from(
                arrays[field.name],
                field.name,
                dtype=field.wire,
                shape=(rows, *field.shape),
                limit=MAX_MESSAGE_BYTES,
            )
            if arrays[field.name].packing == pb.PACKING_RAW:
                _check_values(field.name, array)
            observations[field.name] = array
            rows = len(array)
        columns: dict[str, Any] = {
            name: array_from(
                getattr(body, name), name, dtype=dtype, shape=(None,), limit=dtype.itemsize * MAX_TRANSITIONS
            )
            for name, dtype in _COLUMNS.items()
        }
        batch = cls(
            episode=body.episode,
            attempt=body.attempt,
            task=body.task,
            first_sequence=body.first_sequence,
            worker=body.worker,
            generation=body.generation,
            observations=observations,
            **columns,
        )
        batch._check_columns(schema)
        return batch

    @staticmethod
    def schema_hash(data: bytes) -> str:
        """The hash of the schema that a batch on the wire was written for.

        Raises:
            ProtocolError: it is no batch of transitions.
        """
        return open_envelope(data, "transitions").schema_hash

    def validate(self, schema: Schema) -> None:
        """Check everything a reader relies on.

        Raises:
            ProtocolError: naming what is wrong.
        """
        fields = _fields_of(schema)
        self._check_columns(schema)
        self._check_shapes(fields)
        for field in fields:
            _check_values(field.name, self.observations[field.name])

    def _check_columns(self, schema: Schema) -> None:
        """All but the observations."""
        checked_name(self.episode, "transitions: episode")
        checked_name(self.task, "transitions: task", empty=True)
        checked_name(self.worker, "transitions: worker", empty=True)
        n, rows = len(self.action), self.rows
        if not 1 <= n <= MAX_TRANSITIONS or not 1 <= rows <= MAX_TRANSITIONS:
            raise ProtocolError(f"transitions: {n} over {rows} observations; 1 to {MAX_TRANSITIONS} of each")
        if not 0 <= self.first_sequence <= _MAX_INT64 - n or not 0 <= self.attempt < 2**32:
            raise ProtocolError(
                f"transitions: sequence {self.first_sequence} or attempt {self.attempt} out of range"
            )
        for name, dtype in _COLUMNS.items():
            column: NDArray[Any] = getattr(self, name)
            if column.shape != (n,) or column.dtype != dtype:
                raise ProtocolError(
                    f"transitions: {name} is {column.dtype} {column.shape} where {dtype} ({n},) belongs"
                )
        _in_range(self.obs_index, rows, "obs_index")
        _in_range(self.next_index, rows, "next_index")
        _in_range(self.action, schema.actions, "action")
        for name in ("reward", "discount", "priority"):
            if not is_finite(getattr(self, name)):
                raise ProtocolError(f"transitions: {name} holds NaN or infinity")
        if self.discount.min() < 0 or self.discount.max() > 1:
            raise ProtocolError("transitions: discount is outside [0, 1]")
        if self.priority.min() < 0:
            raise ProtocolError("transitions: priority is negative")
        if self.version.min() < 0:
            raise ProtocolError("transitions: version is negative")

    def _check_shapes(self, fields: Sequence[_Field]) -> None:
        names = {field.name for field in fields}
        if self.observations.keys() != names:
            raise ProtocolError(
                f"transitions: observation fields {sorted(self.observations)[:20]}; expected {sorted(names)}"
            )
        for field in fields:
            array, shape = self.observations[field.name], (self.rows, *field.shape)
            if array.shape != shape or array.dtype not in (field.dtype, field.wire):
                raise ProtocolError(
                    f"transitions: {field.name} is {array.dtype} {array.shape} where {field.dtype} {shape} belongs"
                )


def _check_values(name: str, array: NDArray[Any]) -> None:
    if array.dtype.kind == "f" and not is_finite(array):
        raise ProtocolError(f"transitions: {name} holds NaN or infinity")
    if name.endswith("_mask") and array.size and array.max() > 1:
        raise ProtocolError(f"transitions: {name} holds something other than 0 and 1")


_COLUMNS: dict[str, np.dtype[np.generic]] = {
    "obs_index": np.dtype(np.int32),
    "next_index": np.dtype(np.int32),
    "action": np.dtype(np.int32),
    "reward": np.dtype(np.float32),
    "discount": np.dtype(np.float32),
    "priority": np.dtype(np.float32),
    "version": np.dtype(np.int64),
}


def _in_range(column: NDArray[np.int32], end: int, name: str) -> None:
    if column.min() < 0 or column.max() >= end:
        raise ProtocolError(f"transitions: {name} has a value outside [0, {end})")
