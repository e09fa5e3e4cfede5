"""What a run looks like from outside at one moment, as its programs tell it through Redis."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Member", "Snapshot", "parse_snapshot"]


@dataclass(frozen=True)
class Member:
    """The latest heartbeat of one program."""

    id: str
    role: str = ""
    pid: int = 0
    time: float = 0.0
    browsers: int = 0
    """How many browsers it should have."""
    alive: int = 0
    """How many of them are alive."""
    restarts: int = 0
    """How many browsers and processes it has started anew."""
    restarts_by_kind: Mapping[str, int] = field(default_factory=dict)
    steps: int = 0
    """Environment steps it has taken in this life."""
    sandbox_obstacle: str | None = None
    """Why a browser of it runs without Chromium's sandbox; empty: all run in it; None: it has not told."""
    pids: Mapping[str, int] = field(default_factory=dict)
    """Processes it started itself: name, such as ``worker-0/inference-0``, to process id."""

    def processes(self, kind: str) -> list[int]:
        """Process ids of one kind of those."""
        return [pid for name, pid in self.pids.items() if name.rpartition("/")[2].startswith(f"{kind}-")]


@dataclass(frozen=True)
class Snapshot:
    """Numbers are None until somebody has told them."""

    phase: str = "start"
    reason: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """The learner's progress: steps, episodes, success, loss, staleness, ..."""
    members: tuple[Member, ...] = ()
    completed: int = 0
    """Episodes of all purposes that were completed."""
    checkpoint: str = ""
    """The checkpoint that the learner went on from; empty if it began anew."""
    notices: tuple[str, ...] = ()
    """Lines that the person who started the run should read, in order."""

    def number(self, name: str) -> float | None:
        """One of the learner's numbers."""
        return self.numbers.get(name)

    @property
    def success(self) -> float | None:
        """Success rate of greedy episodes on held-out seeds; before there is any, of training episodes."""
        greedy = self.numbers.get("success")
        return self.numbers.get("success_train") if greedy is None else greedy

    @property
    def browsers(self) -> int:
        """Browsers that should be there."""
        return sum(m.browsers for m in self.members)

    @property
    def alive(self) -> int:
        """Browsers that are there."""
        return sum(m.alive for m in self.members)


def parse_snapshot(
    control: Mapping[Any, bytes | str],
    progress: Mapping[Any, bytes | str],
    members: Mapping[Any, bytes | str],
    counters: Mapping[Any, bytes | str] | None = None,
    notices: Iterable[bytes | str] = (),
) -> Snapshot:
    """Make sense of the four hashes and the list; whatever is damaged or of another kind is left out."""
    state = {_text(k): _json(v, _text(v)) for k, v in control.items()}
    numbers: dict[str, float] = {}
    for key, raw in progress.items():
        value = _json(raw, None)
        if isinstance(value, int | float) and _float(value) == value:
            numbers[_text(key)] = float(value)
    return Snapshot(
        phase=str(state.get("phase") or "start"),
        reason=str(state.get("reason") or ""),
        numbers=numbers,
        members=tuple(
            sorted((_member(_text(k), _json(v, {})) for k, v in members.items()), key=lambda m: m.id)
        ),
        completed=sum(
            _int(_json(v, 0)) for k, v in (counters or {}).items() if _text(k).endswith("_episodes")
        ),
        checkpoint=str(state.get("checkpoint") or ""),
        notices=tuple(str(_json(line, _text(line))) for line in notices),
    )


def _member(id: str, value: Any) -> Member:
    if not isinstance(value, dict):
        return Member(id)
    restarts = value.get("restarts", 0)
    by_kind: dict[str, int] = {}
    pids = value.get("pids")
    if isinstance(restarts, dict):
        by_kind = {str(k): _int(v) for k, v in restarts.items() if isinstance(v, int | float)}
    return Member(
        id=id,
        role=str(value.get("role", "")),
        pid=_int(value.get("pid")),
        time=_float(value.get("time")),
        browsers=_int(value.get("browsers")),
        alive=_int(value.get("alive")),
        restarts=sum(by_kind.values()) if by_kind else _int(restarts),
        restarts_by_kind=by_kind,
        steps=_int(value.get("steps")),
        sandbox_obstacle=obstacle if isinstance(obstacle := value.get("sandbox_obstacle"), str) else None,
        pids={str(k): v for k, v in pids.items() if isinstance(v, int)} if isinstance(pids, dict) else {},
    )


def _int(value: Any) -> int:
    return int(_float(value))


def _float(value: Any) -> float:
    """0 for what is no number, or none that a float holds."""
    try:
        number = float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _json(value: bytes | str, default: Any) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return default
