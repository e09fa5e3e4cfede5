"""The ledger of a run against the books of its queue."""

from __future__ import annotations

from webgym.benches.accounts import Account, QueueBooks, reconcile


def train(index: int) -> str:
    return f"train-{index:08d}"


def books(
    *done: str,
    dead: tuple[str, ...] = (),
    open: tuple[str, ...] = (),
    waiting: tuple[str, ...] = (),
    dealt: int = 0,
) -> QueueBooks:
    counters = {"train_steps": 99.0, "train_episodes": float(sum(name.startswith("train") for name in done))}
    return QueueBooks(*map(frozenset, (done, dead, open, waiting)), counters, {"train": dealt})


def lines(*episodes: str) -> list[dict[str, str]]:
    return [{"episode": name} for name in episodes]


def test_a_sound_account() -> None:
    found = reconcile(
        lines(train(0), train(1)), books(train(0), train(2), dead=(train(1),), waiting=(train(2),), dealt=3)
    )
    assert found == Account(2, (), (), (), 0.0, 0)
    assert found.sound


def test_every_fault_is_named() -> None:
    found = reconcile(
        lines(train(0), train(0), train(7)),
        books(train(0), train(1), "validate-round-00000003", open=(train(4),), dealt=6),
    )
    assert found.lost == (train(1), "validate-round-00000003")
    assert found.doubled == (train(0),)
    assert found.unknown == (train(7),)
    assert found.miscounted == 1.0  # nobody counted the validation
    assert found.never_played == 3  # 2, 3 and 5
    assert not found.sound
