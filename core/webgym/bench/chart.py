"""A bar chart as SVG: no library is needed to draw rectangles, and any browser shows it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["bar_chart"]

_WIDTH, _LABELS, _VALUES = 860, 330, 90
_BAR, _GAP, _TOP = 22, 10, 62
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2933}.t{font-size:16px;font-weight:600}.u{fill:#616e7c}"
    "rect{fill:#9fb3c8}.first{fill:#0f609b}"
    "@media(prefers-color-scheme:dark){text{fill:#e4e7eb}.u{fill:#9aa5b1}rect{fill:#52667a}.first{fill:#4098d7}}"
)


def bar_chart(title: str, unit: str, bars: Sequence[tuple[str, float]]) -> str:
    """Horizontal bars from zero, in the order given, the first one set off.

    Args:
        title: Above the chart.
        unit: What the lengths are, below the title.
        bars: Label and value of each; values are not negative.

    Returns:
        An SVG document.
    """
    most = max((value for _, value in bars), default=0.0) or 1.0
    height = _TOP + len(bars) * (_BAR + _GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<text class="t" x="8" y="24">{escape(title)}</text>',
        f'<text class="u" x="8" y="44">{escape(unit)}</text>',
    ]
    for index, (label, value) in enumerate(bars):
        y = _TOP + index * (_BAR + _GAP)
        length = max(1.0, value / most * (_WIDTH - _LABELS - _VALUES))
        first = ' class="first"' if index == 0 else ""
        lines += [
            f'<text x="{_LABELS - 10}" y="{y + 16}" text-anchor="end">{escape(label)}</text>',
            f'<rect{first} x="{_LABELS}" y="{y}" width="{length:.1f}" height="{_BAR}" rx="3"/>',
            f'<text x="{_LABELS + length + 8:.1f}" y="{y + 16}">{value:.3g}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
