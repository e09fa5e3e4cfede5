"""The words of ``webgym queue``."""

from __future__ import annotations

from pathlib import Path

import pytest

from webgym.commands.queue import Request, parse_words
from webgym.errors import UsageError


@pytest.mark.parametrize(
    ("words", "priority", "everything", "request_"),
    [
        ([], None, False, Request("show", None, None)),
        (["runs/a"], None, False, Request("show", None, Path("runs/a"))),
        (["show", "move"], None, False, Request("show", None, Path("move"))),
        (["move", "e-1"], 2.5, False, Request("move", "e-1", None)),
        (["move", "e-1", "runs/a"], -1, False, Request("move", "e-1", Path("runs/a"))),
        (["requeue", "e-1"], None, False, Request("requeue", "e-1", None)),
        (["requeue", "e-1", "runs/a"], None, False, Request("requeue", "e-1", Path("runs/a"))),
        (["requeue", "runs/a"], None, True, Request("requeue", None, Path("runs/a"))),
    ],
)
def test_words(words: list[str], priority: float | None, everything: bool, request_: Request) -> None:
    assert parse_words(words, priority=priority, everything=everything) == request_


@pytest.mark.parametrize(
    ("words", "priority", "everything", "said"),
    [
        (["mvoe", "e-1"], None, False, "has no mvoe; it has show, move and requeue"),
        (["runs/a", "runs/b"], None, False, "runs/b is one word too many"),
        (["move", "e-1"], None, False, "name an episode and its new priority"),
        (["move"], 1.0, False, "name an episode and its new priority"),
        (["move", "e-1"], float("nan"), False, "--priority is nan"),
        (["move", "e-1", "runs/a", "x"], 1.0, False, "x is one word too many"),
        (["requeue"], None, False, "requeue EPISODE, or --all"),
        (["requeue", "e-1"], 1.0, False, "--priority goes with move"),
        ([], None, True, "--all goes with requeue"),
    ],
)
def test_wrong_words_are_one_line(
    words: list[str], priority: float | None, everything: bool, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        parse_words(words, priority=priority, everything=everything)
