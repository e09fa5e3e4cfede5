from __future__ import annotations

import numpy as np
import pytest

from webgym.schema import GLOBAL_KINDS, Action, ActionKind, Schema


def test_every_flat_action_has_its_own_meaning() -> None:
    schema = Schema(nodes=3, texts=2)
    actions = [schema.decode(i) for i in range(schema.actions)]
    assert len(set(actions)) == schema.actions == 4 * 3 + 2 * 3 * 2 + 6
    assert [schema.encode(a) for a in actions] == list(range(schema.actions))
    assert {a.kind for a in actions} == set(ActionKind)


def test_global_kinds_ignore_node_and_text() -> None:
    schema = Schema()
    for kind in GLOBAL_KINDS:
        assert schema.encode(Action(kind, 99, 99)) == schema.encode(Action(kind))


@pytest.mark.parametrize(
    "action", [Action(ActionKind.CLICK, 20), Action(ActionKind.TYPE, 0, 8), Action(ActionKind.HOVER, -1)]
)
def test_out_of_range_is_refused(action: Action) -> None:
    with pytest.raises(ValueError, match="is not in"):
        Schema().encode(action)


def test_default_sizes_are_the_documented_ones() -> None:
    fields = Schema().fields()
    assert fields["dom"].shape == (20, 25)
    assert fields["dom"].dtype == np.float32
    assert fields["action_mask"].shape == (406,)
    assert "frame" not in fields
    assert Schema(frame=(224, 224, 3)).fields()["frame"].shape == (224, 224, 3)


def test_hash_tells_schemas_apart() -> None:
    assert Schema().hash == Schema().hash
    others = [
        Schema(),
        Schema(match=False),
        Schema(nodes=21),
        Schema(texts=7),
        Schema(frame=(224, 224, 3)),
    ]
    assert len({schema.hash for schema in others}) == len(others)
