"""The task's instruction, taken apart: the spans it names, its words, and how well other text matches them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from webgym_workers.observer.looks import LOOK_WORDS, Looks

__all__ = ["Instruction", "Match", "akin", "attribute_words", "words"]

K = TypeVar("K")
V = TypeVar("V")

_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|«([^»]+)»|(?<!\w)'([^']+)'(?!\w)")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*", re.UNICODE)
_OF_SOMEBODY = re.compile(r"\b(?:by|from|to|for|of) ([A-Z][^\W_]+)\b")
_STARTS = re.compile(r"\b(?:start|begin)(?:s|ning|ing)? with ['\"“]([^'\"”]+)['\"”]", re.IGNORECASE)
_ENDS = re.compile(r"\bend(?:s|ing)? with ['\"“]([^'\"”]+)['\"”]", re.IGNORECASE)
_SHADES = frozenset(("shade", "shades", "tint", "tints", "tone", "tones", "hue", "hues"))
_SAYS_NAME = 0.75
"""Overlap of a text that says a name among other things."""
_NEAR = 3
"""Words on either side of a text that are said of it."""
_STEM = 5
"""Letters that two forms of a word share at least."""
_POSSESSIVE = re.compile(r"['’]s$")
_MOST_REMEMBERED = 2048
"""Answers of each kind: of a page whose texts change all the time, no more are kept."""
_PUNCTUATION = ".,;:!?()[]\"'“”«»"
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|[\W_]+|(?<=\D)(?=\d)|(?<=\d)(?=\D)")

_STOP = frozenset(
    (
        "a an the of on in into to and or for with by from at is are be it its this that then your you i as all any "
        "click press select enter type find choose use button link box text field below labeled item"
    ).split()
)

_SYNONYMS: dict[str, tuple[str, ...]] = {
    "trash": ("delete", "trash", "remove", "bin"),
    "delete": ("delete", "trash", "remove"),
    "remove": ("delete", "remove"),
    "star": ("star", "important", "favorite", "favourite"),
    "important": ("star", "important"),
    "close": ("close", "x", "dismiss"),
    "closethick": ("close", "x"),
    "search": ("search", "find"),
    "submit": ("submit", "send"),
    "send": ("send", "submit"),
    "reply": ("reply",),
    "retweet": ("retweet", "repost", "share"),
    "menu": ("menu", "more"),
    "more": ("more", "menu"),
    "textarea": ("textarea",),
    "prev": ("previous", "back"),
    "next": ("next", "forward"),
    "username": ("username", "user"),
    "img": ("image", "picture", "icon"),
}


def words(text: str) -> tuple[str, ...]:
    """The words of a text, lower-cased, punctuation gone."""
    return tuple(w.lower() for w in _WORD.findall(text))


def akin(some: Iterable[str], others: frozenset[str]) -> bool:
    """Whether a word of the one is a word of the other, or begins like one: "directed by" is about the "Director"."""
    return any(
        word in others or (len(word) >= _STEM and any(other.startswith(word[:_STEM]) for other in others))
        for word in some
    )


@lru_cache(maxsize=4096)
def attribute_words(text: str) -> frozenset[str]:
    """Words hidden in attribute values: ``email-forward`` and ``emailForward`` both hold "email" and "forward"."""
    parts = (p.lower() for p in _CAMEL.split(text))
    return frozenset(p for p in parts if len(p) > 1 or p == "x")


@dataclass(frozen=True, slots=True)
class Match:
    """How a text fits the instruction; every figure in [0, 1]."""

    equals: float = 0.0
    """1 when the text is a span that the instruction names, letter by letter."""
    contained: float = 0.0
    """1 when the instruction holds the text as whole words, letter case and all."""
    contained_caseless: float = 0.0
    overlap: float = 0.0
    """The share of the text's own words, without filler words, that the instruction holds; at least 0.75 where the text
    says one of the instruction's names among other things, or starts and ends as the instruction asks."""
    order: float = 0.0
    """1 for what the instruction names first, falling towards 0 for what it names last; 0 when it names it nowhere."""


_NONE = Match()


@dataclass(frozen=True)
class Instruction:
    """An instruction and what can be told from it alone.

    Args:
        text: the instruction as a person reads it.
        emphasised: spans that the page sets off (bold), which count like quoted ones.
    """

    text: str
    emphasised: tuple[str, ...] = ()
    spans: tuple[str, ...] = field(init=False)
    """Quoted and emphasised spans in the order in which they appear."""
    words: tuple[str, ...] = field(init=False)
    plain_words: tuple[str, ...] = field(init=False)
    """The words outside the spans: the verb and the nouns of the job itself."""
    names: tuple[str, ...] = field(init=False)
    """The spans, and names that follow a word such as "by" or "from"; where there are no spans, runs of words that look
    like names or values."""
    look_words: frozenset[str] = field(init=False)
    """The words that say how something looks."""
    _shades: bool = field(init=False, repr=False, compare=False)
    _matches: dict[str, Match] = field(init=False, default_factory=dict, repr=False, compare=False)
    _unwritten: dict[tuple[str, str, Looks | None], float] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )
    _distances: dict[tuple[frozenset[str], str], float | None] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        found: dict[str, int] = {}
        for m in _QUOTED.finditer(self.text):
            span = next(g for g in m.groups() if g is not None).strip()
            if span:
                found.setdefault(span, m.start())
        for span in self.emphasised:
            span = span.strip().strip("\"'")
            if span and len(span) < len(self.text) and span in self.text:
                found.setdefault(span, self.text.index(span))
        spans = tuple(sorted(found, key=lambda s: found[s]))
        rest = self.text
        for span in spans:
            # As a whole: a span of one letter is no part of the words around it.
            rest = re.sub(rf"(?<!\w){re.escape(span)}(?!\w)", " ", rest)
        object.__setattr__(self, "spans", spans)
        object.__setattr__(self, "words", words(self.text))
        object.__setattr__(self, "plain_words", words(rest))
        named = (*spans, *(m[1] for m in _OF_SOMEBODY.finditer(rest))) if spans else self._named_runs()
        object.__setattr__(self, "names", tuple(dict.fromkeys(named)))
        object.__setattr__(self, "look_words", LOOK_WORDS.intersection(self.plain_words))
        object.__setattr__(self, "_shades", not _SHADES.isdisjoint(self.plain_words))

    def match(self, text: str) -> Match:
        """How ``text`` fits; remembered, since the same captions come back at every step."""
        if not text or len(text) > 160:
            return _NONE
        return _remembered(self._matches, text, lambda: self._match(text))

    def _match(self, text: str) -> Match:
        at = _find_words(self.text, text)
        at_caseless = at if at >= 0 else _find_words(self.text.lower(), text.lower())
        equal = 1.0 if text in self.spans else 0.0
        own = [w for w in words(text) if w not in _STOP]
        held = set(self.words)
        overlap = sum(w in held for w in own) / len(own) if own else 0.0
        if overlap < _SAYS_NAME and (
            any(_find_words(text, name) >= 0 for name in self.names) or self._has_ends(text)
        ):
            overlap = _SAYS_NAME
        position = self.text.find(text) if equal else at_caseless
        order = 1.0 - 0.9 * position / max(1, len(self.text)) if position >= 0 else 0.0
        return Match(equal, float(at >= 0), float(at_caseless >= 0), overlap, order)

    def _has_ends(self, text: str) -> bool:
        starts, ends = _STARTS.findall(self.text), _ENDS.findall(self.text)
        if not starts and not ends:
            return False
        lower = text.lower()
        return all(lower.startswith(s.lower()) for s in starts) and all(
            lower.endswith(e.lower()) for e in ends
        )

    def match_attributes(self, attributes: str, tag: str, looks: Looks | None = None) -> float:
        """How well what is not written on a node fits.

        1 when a span is named by an attribute (``type="checkbox"``) or a look, when all that the instruction says of
        looks is true of the node, or when an attribute's value with digits stands in the instruction
        (``id="(1,-2)"``, ``name="row-17"``); else half the share of the words for looks that are true of it, or 0.5
        when an attribute is a plain word. Remembered, as :meth:`match` is.
        """
        key = attributes, tag, looks
        return _remembered(self._unwritten, key, lambda: self._match_attributes(*key))

    def _match_attributes(self, attributes: str, tag: str, looks: Looks | None) -> float:
        names = attribute_words(attributes) | {tag}
        names = names.union(*(_SYNONYMS[n] for n in names if n in _SYNONYMS))
        spans = {s.lower() for s in self.spans}
        if names & spans or (looks and looks.words & spans) or self._says(attributes):
            return 1.0
        fit = looks.fit(self.look_words, shades=self._shades) if looks else 0.0
        if fit == 1.0:
            return 1.0
        content = {w for w in self.words if w not in _STOP}
        if looks and looks.form:
            names -= {tag}  # what it is counts among its looks
        return max(0.5 * fit, 0.5 if names & content else 0.0)

    def _says(self, attributes: str) -> bool:
        return any(
            len(value) > 2 and any(c.isdigit() for c in value) and _find_words(self.text, value) >= 0
            for value in attributes.split()
        )

    def candidates(self, limit: int, on_page: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Texts that an agent may type or choose, at most ``limit``, each once.

        Spans first; then what the page offers and the instruction names (options of a list); then words with digits;
        then capitalised words inside a sentence; then the remaining words of content, last first.

        Args:
            limit: how many texts the schema has.
            on_page: option texts of the page's lists.
        """
        chosen: dict[str, None] = dict.fromkeys(self.spans)
        for option in on_page:
            if option and self.match(option).contained:
                chosen.setdefault(option)
        named = " ".join(chosen)
        runs = self._named_runs()
        for run in sorted(runs, key=lambda r: not any(c.isdigit() for c in r)):
            if run not in named:
                chosen.setdefault(run)
        stripped = [w.strip(_PUNCTUATION) for w in self.text.split()]
        if len(chosen) < 2 or not self.spans:
            for word in reversed(stripped):
                if word and word.lower() not in _STOP and word not in named:
                    chosen.setdefault(word)
        return tuple(chosen)[:limit]

    def _named_runs(self) -> list[str]:
        """Runs of words that look like names or values: capitalised inside a sentence, or with a digit."""
        runs: list[list[str]] = [[]]
        sentence_start = True
        for token in self.text.split():
            word = token.strip(_PUNCTUATION)
            value_like = any(c.isdigit() for c in word)
            if word and (value_like or (word[0].isupper() and not sentence_start)):
                runs[-1].append(word)
            else:
                runs.append([])
            if token[-1:] in ",;:.!?\"'":
                runs.append([])
            sentence_start = token[-1:] in ".!?"
        # Of "Select Joanna's email" the name is Joanna.
        return [_POSSESSIVE.sub("", " ".join(run)) for run in runs if run]

    def distance(self, about: frozenset[str], text: str) -> float | None:
        """How many words lie between ``text`` and the nearest word akin to one of ``about``.

        Of two as near, the one before is nearer: half a word is added after the text. None where there is none among
        the nearest three words on either side. Remembered, as :meth:`match` is.
        """
        return _remembered(self._distances, (about, text), lambda: self._distance(about, text))

    def _distance(self, about: frozenset[str], text: str) -> float | None:
        at = self.text.find(text)
        if at < 0:
            return None
        sides = (words(self.text[:at])[: -_NEAR - 1 : -1], words(self.text[at + len(text) :])[:_NEAR])
        found = [
            n + 0.5 * side
            for side, near in enumerate(sides)
            for n, word in enumerate(near)
            if akin(about, frozenset((word,)))
        ]
        return min(found, default=None)


def _remembered(memory: dict[K, V], key: K, find: Callable[[], V]) -> V:
    """What was found for a key before, or is found now."""
    try:
        return memory[key]
    except KeyError:
        if len(memory) > _MOST_REMEMBERED:
            memory.clear()
        memory[key] = found = find()
        return found


def _find_words(text: str, part: str) -> int:
    """Where ``part`` stands in ``text`` as whole words, or -1."""
    at = text.find(part)
    while at >= 0:
        before = text[at - 1] if at else " "
        end = at + len(part)
        after = text[end] if end < len(text) else " "
        left = not (before.isalnum() and part[0].isalnum())
        right = not (after.isalnum() and part[-1].isalnum())
        if left and right:
            return at
        at = text.find(part, at + 1)
    return -1
