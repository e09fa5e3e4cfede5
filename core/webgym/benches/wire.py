"""``webgym bench wire``: a recorded episode as a message and back, against JSON of the same content."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import fields, replace
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from webgym.bench import BenchResult, Column, check_counts
from webgym.errors import UsageError
from webgym.protocol import TransitionBatch
from webgym.schema import FRAME_SHAPE, Schema

__all__ = ["WireBench", "recorded_episode"]

_WARM_UP = 3
_COLUMNS = (
    Column("way", "way"),
    Column("encode_ms", "encode, median, ms", 3),
    Column("decode_ms", "decode, median, ms", 3),
    Column("ms", "both, ms", 3),
    Column("bytes", "bytes", 0),
    Column("time_saved", "time saved", 3),
    Column("bytes_saved", "bytes saved", 3),
)


class _Way(NamedTuple):
    name: str
    encode: Callable[[], bytes]
    decode: Callable[[bytes], Any]


class WireBench:
    """Messages against JSON."""

    help = "encode and decode a recorded episode, against JSON by orjson of the same content"
    title = "An episode of 16 steps, encoded and decoded"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "--runs", type=int, default=100, metavar="N", help="measurements of each way (default: 100)"
        )

    def run(self, args: argparse.Namespace) -> BenchResult:
        """Measure ours and JSON in turn, so that whatever else the machine does hits both.

        Raises:
            UsageError: orjson is not installed.
        """
        check_counts(args, "runs")
        rows = _measure("without frames", *recorded_episode(frames=False), args.runs)
        with_frames = _measure("with frames", *recorded_episode(frames=True), max(3, args.runs // 10))
        ours, framed = rows[0], with_frames[0]
        return BenchResult(
            figures={
                "time_saved": ours["time_saved"],
                "bytes_saved": ours["bytes_saved"],
                "frames_time_saved": framed["time_saved"],
                "frames_bytes_saved": framed["bytes_saved"],
            },
            runs=args.runs,
            rows=[*rows, *with_frames],
            columns=_COLUMNS,
            plotted="ms",
            notes=(
                "A real episode of miniwob.book-flight, 16 transitions over 17 observations, as an actor sent it; once "
                "without and once with frames of 224x224 (those a tenth as often).",
                "JSON holds the same content in the same layout: each observation once, arrays as nested lists of "
                "numbers, which orjson writes straight from NumPy's memory. Decoding ends in both ways with NumPy "
                "arrays of the schema's shapes; ours also checks every value, JSON's does not.",
                "Every value that is decoded equals the one that was encoded, in both ways.",
            ),
        )


def recorded_episode(*, frames: bool) -> tuple[Schema, TransitionBatch]:
    """An episode that an actor played, as it has it before it encodes it: features float32.

    Args:
        frames: with pictures, or without.
    """
    schema = Schema(frame=FRAME_SHAPE if frames else None)
    name = "episode-frames.bin" if frames else "episode.bin"
    data = (files(__package__) / "data" / name).read_bytes()
    # What is measured is the wire, not the features, whose meaning the hash names too.
    schema.__dict__["hash"] = TransitionBatch.schema_hash(data)
    batch = TransitionBatch.decode(data, schema)
    return schema, replace(batch, observations=batch.unpacked())


def _measure(what: str, schema: Schema, batch: TransitionBatch, runs: int) -> list[dict[str, Any]]:
    ours = _Way(
        f"protobuf, {what}",
        lambda: batch.encode(schema),
        lambda data: TransitionBatch.decode(data, schema),
    )
    ways = (ours, _json_way(f"JSON, {what}", schema, batch))
    seconds: dict[str, list[tuple[float, float]]] = {way.name: [] for way in ways}
    sizes: dict[str, int] = {}
    for number in range(_WARM_UP + runs):
        for way in ways:
            start = time.perf_counter()
            data = way.encode()
            middle = time.perf_counter()
            way.decode(data)
            end = time.perf_counter()
            sizes[way.name] = len(data)
            if number >= _WARM_UP:
                seconds[way.name].append((middle - start, end - middle))
    rows = []
    for way in ways:
        encode, decode = (statistics.median(column) * 1e3 for column in zip(*seconds[way.name], strict=True))
        rows.append(
            {
                "way": way.name,
                "encode_ms": round(encode, 4),
                "decode_ms": round(decode, 4),
                "ms": round(encode + decode, 4),
                "bytes": sizes[way.name],
            }
        )
    json = rows[-1]
    for row in rows[:-1]:
        row["time_saved"] = round(1 - row["ms"] / json["ms"], 4)
        row["bytes_saved"] = round(1 - row["bytes"] / json["bytes"], 4)
    return rows


def _json_way(name: str, schema: Schema, batch: TransitionBatch) -> _Way:
    try:
        import orjson
    except ModuleNotFoundError as error:
        raise UsageError("webgym bench wire compares with orjson: pip install orjson") from error

    columns = {
        f.name: getattr(batch, f.name).dtype
        for f in fields(batch)
        if isinstance(getattr(batch, f.name), np.ndarray)
    }
    dtypes = {field: spec.dtype for field, spec in schema.fields().items()}

    def encode() -> bytes:
        content = {f.name: getattr(batch, f.name) for f in fields(batch)}
        return bytes(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY))

    def decode(data: bytes) -> dict[str, Any]:
        content: dict[str, Any] = orjson.loads(data)
        content["observations"] = {
            field: np.array(values, dtypes[field]) for field, values in content["observations"].items()
        }
        for column, dtype in columns.items():
            content[column] = np.array(content[column], dtype)
        return content

    return _Way(name, encode, decode)
