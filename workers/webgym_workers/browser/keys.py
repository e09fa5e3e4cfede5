"""Keys as the DevTools protocol wants them: names for people, codes of a US keyboard for the page."""

from __future__ import annotations

from typing import Any

__all__ = ["MODIFIERS", "key_events", "text_events"]

MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}

# name -> (code, Windows virtual key code, text)
_NAMED: dict[str, tuple[str, int, str]] = {
    "Enter": ("Enter", 13, "\r"),
    "Tab": ("Tab", 9, ""),
    "Backspace": ("Backspace", 8, ""),
    "Delete": ("Delete", 46, ""),
    "Escape": ("Escape", 27, ""),
    "Space": ("Space", 32, " "),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "Home": ("Home", 36, ""),
    "End": ("End", 35, ""),
    "PageUp": ("PageUp", 33, ""),
    "PageDown": ("PageDown", 34, ""),
    "Insert": ("Insert", 45, ""),
    **{f"F{n}": (f"F{n}", 111 + n, "") for n in range(1, 13)},
}

_PUNCTUATION: dict[str, tuple[str, int]] = {
    " ": ("Space", 32),
    **dict.fromkeys("-_", ("Minus", 189)),
    **dict.fromkeys("=+", ("Equal", 187)),
    **dict.fromkeys("[{", ("BracketLeft", 219)),
    **dict.fromkeys("]}", ("BracketRight", 221)),
    **dict.fromkeys("\\|", ("Backslash", 220)),
    **dict.fromkeys(";:", ("Semicolon", 186)),
    **dict.fromkeys("'\"", ("Quote", 222)),
    **dict.fromkeys(",<", ("Comma", 188)),
    **dict.fromkeys(".>", ("Period", 190)),
    **dict.fromkeys("/?", ("Slash", 191)),
    **dict.fromkeys("`~", ("Backquote", 192)),
    **dict(zip(")!@#$%^&*(", ((f"Digit{n}", 48 + n) for n in range(10)), strict=True)),
}


def _of_character(char: str) -> tuple[str, int] | None:
    if "a" <= char.lower() <= "z" and char.isascii():
        return f"Key{char.upper()}", ord(char.upper())
    if char.isascii() and char.isdigit():
        return f"Digit{char}", ord(char)
    return _PUNCTUATION.get(char)


def key_events(key: str) -> list[dict[str, Any]]:
    """Parameters of the ``Input.dispatchKeyEvent`` calls that press and release ``key``.

    Args:
        key: A name (``Enter``, ``Tab``, ``ArrowDown``, ``F5``), one character, or either after modifiers:
            ``Control+a``, ``Shift+Tab``.

    Raises:
        ValueError: There is no such key.
    """
    *modifiers, name = [key] if key == "+" else key.replace("++", "+Plus").split("+")
    name = "+" if name == "Plus" else name
    mask = 0
    for modifier in modifiers:
        if modifier not in MODIFIERS:
            raise ValueError(f"no modifier {modifier!r} in key {key!r}: use {', '.join(MODIFIERS)}")
        mask |= MODIFIERS[modifier]
    if name in _NAMED:
        code, virtual, text = _NAMED[name]
        shown = " " if name == "Space" else name
    else:
        found = _of_character(name) if len(name) == 1 else None
        if found is None:
            raise ValueError(f"no key {key!r}: use one character or one of {', '.join(_NAMED)}")
        (code, virtual), text, shown = found, name, name
    common: dict[str, Any] = {"key": shown, "code": code, "windowsVirtualKeyCode": virtual, "modifiers": mask}
    # With Control, Alt or Meta a key is a command and types nothing.
    types = bool(text) and not mask & (MODIFIERS["Alt"] | MODIFIERS["Control"] | MODIFIERS["Meta"])
    down = {**common, "type": "keyDown", "text": text} if types else {**common, "type": "rawKeyDown"}
    if mask & (MODIFIERS["Control"] | MODIFIERS["Meta"]) and name.lower() == "a":
        down["commands"] = ["selectAll"]
    return [down, {**common, "type": "keyUp"}]


def text_events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Commands (method, parameters) that type ``text``: keys where a US keyboard has them, else insertion."""
    commands: list[tuple[str, dict[str, Any]]] = []
    rest = ""
    for char in text:
        found = _of_character(char)
        if found is None and char != "\n":
            rest += char
            continue
        if rest:
            commands.append(("Input.insertText", {"text": rest}))
            rest = ""
        if found is None:
            commands += [("Input.dispatchKeyEvent", event) for event in key_events("Enter")]
            continue
        code, virtual = found
        shift = MODIFIERS["Shift"] if char.isupper() or char in '~!@#$%^&*()_+{}|:"<>?' else 0
        common = {"key": char, "code": code, "windowsVirtualKeyCode": virtual, "modifiers": shift}
        commands.append(("Input.dispatchKeyEvent", {**common, "type": "keyDown", "text": char}))
        commands.append(("Input.dispatchKeyEvent", {**common, "type": "keyUp"}))
    if rest:
        commands.append(("Input.insertText", {"text": rest}))
    return commands
