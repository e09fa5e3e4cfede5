"""The bench of round trips: what its figures are made of."""

from __future__ import annotations

from webgym_workers.benches.cdp import _OURS, _PLAYWRIGHT, _WEBSOCKET, _result, _Way


async def _nothing(method: str, params: object) -> dict[str, object]:
    return {}


def test_the_ratio_is_playwrights_median_over_ours() -> None:
    ways = {
        _OURS: _Way(_nothing, [0.001, 0.002, 0.009], [0.1]),
        _WEBSOCKET: _Way(_nothing, [0.003] * 3, [0.1]),
        _PLAYWRIGHT: _Way(_nothing, [0.005, 0.006, 0.007], [0.3]),
    }
    result = _result(ways)
    assert result.figures == {
        "ratio": 3.0,
        "median_ms": 2.0,
        "playwright_median_ms": 6.0,
        "websocket_median_ms": 3.0,
    }
    assert result.runs == 3
    assert [row["ratio"] for row in result.rows] == [1.0, 1.5, 3.0]
