"""Text of anybody's making, fit for a terminal: what a terminal would act on is shown as an escape instead."""

from __future__ import annotations

__all__ = ["one_line", "printable"]


def printable(text: str) -> str:
    r"""The text on one line, with every control character, line break and lone surrogate escaped.

    >>> printable("a\x1b[31mb\n")
    'a\\x1b[31mb\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def one_line(text: str) -> str:
    """A message as one line: line breaks of our own become spaces, the rest is as by :func:`printable`."""
    return printable(" ".join(text.split()))
