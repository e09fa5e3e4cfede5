"""Which checkpoint of a run was judged best, and by what: a note beside the checkpoints.

One file that is replaced as a whole holds the step, its score and the verdict it rests on, so whoever is killed when,
they never contradict each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webgym.rundir import write_atomic

__all__ = ["BestNote", "read_note", "remove_note", "write_note"]

_NAME = "best.json"


@dataclass(frozen=True)
class BestNote:
    """The checkpoint that was judged best so far."""

    step: int
    score: float
    """What checkpoints are compared by; the larger the better."""
    verdict: Mapping[str, Any] = field(default_factory=dict)
    """What the score was made of; whoever wrote it reads it."""


def read_note(folder: Path) -> BestNote | None:
    """The note in a folder of checkpoints; None where there is none, or none that can be read."""
    try:
        note = json.loads((folder / _NAME).read_bytes())
        verdict = note.get("verdict")
        found = BestNote(
            int(note["step"]), float(note["score"]), verdict if isinstance(verdict, dict) else {}
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return None
    return None if math.isnan(found.score) else found


def write_note(folder: Path, note: BestNote) -> None:
    """Replace the note as a whole.

    Raises:
        OSError: the disk does not take it; the earlier note is still there.
    """
    text = json.dumps({"step": note.step, "score": note.score, "verdict": dict(note.verdict)})
    write_atomic(folder / _NAME, text)


def remove_note(folder: Path) -> None:
    """Say that no checkpoint was judged. Harmless where there is no note."""
    (folder / _NAME).unlink(missing_ok=True)
