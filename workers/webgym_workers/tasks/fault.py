"""What went wrong in a task's own code, in one line: it is anybody's code and may raise anything."""

from __future__ import annotations

import importlib
import os
import sysconfig
import traceback
from pathlib import Path

__all__ = ["describe_fault"]

_MOST_CHARACTERS = 300
_BETWEEN = ("<", f"{Path(__file__).parent.parent}{os.sep}", f"{Path(importlib.__file__).parent}{os.sep}")
"""Where a call of a task's code passes through before it gets there: the import system, and us."""
_LIBRARIES = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def describe_fault(error: BaseException) -> str:
    """``NameError: name 'x' is not defined (/home/me/shop.py:3)``.

    The place is the innermost line of code that belongs neither to Python nor to an installed package nor to us:
    where a task hands nonsense to a library, the line to mend is the task's. Where all of it is installed, it is the
    innermost line; where no line is known, there is none.
    """
    if isinstance(error, SyntaxError) and error.filename:
        # Code that does not compile has no line that was run; the error itself knows where it is.
        return f"{type(error).__name__}: {_one_line(error.msg)} ({error.filename}:{error.lineno or 1})"
    said = _one_line(str(error))
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    place = _place(error)
    return f"{text} ({place})" if place else text


def _place(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_BETWEEN)]
    own = [f for f in frames if not f.filename.startswith(_LIBRARIES)]
    innermost = (own or frames)[-1:]
    return "".join(f"{f.filename}:{f.lineno}" for f in innermost)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1] + "…"
