"""Checkpoints: whole or not there, exact, refused in one line when anything is wrong with them."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webgym.errors import CheckpointError
from webgym.schema import Schema
from webgym_learner.best import BestNote, read_note
from webgym_learner.checkpoint import CheckpointStore, load_checkpoint
from webgym_learner.dqn import DQN
from webgym_learner.replay import PrioritizedReplay
from webgym_policy.network import PolicyNetwork, parameters_of

SCHEMA = Schema(nodes=4, texts=2)


def contents(seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(seed)
    arrays = {
        "learner": {
            "online": {"a.weight": rng.random((3, 4), np.float32)},
            "optimizer": {},
            "step": np.array(7.0),
        },
        "replay": {
            "mask": rng.integers(0, 255, 5).astype(np.uint8),
            "half": rng.random(4).astype(np.float16),
        },
    }
    state = {
        "updates": np.int64(5),
        "beta": 0.1 + 0.2,
        "random": rng.bit_generator.state,
        "tasks": ["a", None],
    }
    return arrays, state


def store(directory: Path, keep: int = 3) -> CheckpointStore:
    return CheckpointStore(directory / "checkpoints", SCHEMA.hash, keep)


def filled(directory: Path, steps: int = 3) -> CheckpointStore:
    made = store(directory)
    for step in range(1, steps + 1):
        made.save(step * 100, *contents(step))
    return made


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    arrays, state = contents()
    path = store(tmp_path).save(1200, arrays, state)
    found = store(tmp_path).latest()
    assert (found.step, found.path, found.schema) == (1200, path, SCHEMA.hash)
    assert found.state == {**state, "updates": 5}
    assert found.arrays["learner"]["optimizer"] == {}
    for got, want in (
        (found.arrays["learner"]["online"]["a.weight"], arrays["learner"]["online"]["a.weight"]),
        (found.arrays["learner"]["step"], arrays["learner"]["step"]),
        (found.arrays["replay"]["mask"], arrays["replay"]["mask"]),
        (found.arrays["replay"]["half"], arrays["replay"]["half"]),
    ):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype
    # The random state goes on with the very same numbers.
    rng, again = np.random.default_rng(0), np.random.default_rng(9)
    rng.bit_generator.state, again.bit_generator.state = state["random"], found.state["random"]
    assert (rng.random(5) == again.random(5)).all()


def test_a_group_loads_alone_even_when_another_is_damaged(tmp_path: Path) -> None:
    path = store(tmp_path).save(1, *contents())
    (path / "replay.npz").write_bytes(b"")
    assert set(load_checkpoint(path, groups={"learner"}).arrays) == {"learner"}
    with pytest.raises(CheckpointError, match=r"replay\.npz"):
        load_checkpoint(path)
    with pytest.raises(CheckpointError, match="lacks curriculum"):
        load_checkpoint(path, groups={"curriculum"})


def test_a_learner_and_its_replay_go_through_a_checkpoint(tmp_path: Path) -> None:
    dqn, memory = DQN(PolicyNetwork(SCHEMA, seed=1)), PrioritizedReplay(SCHEMA, 1 << 20)
    page = {k: np.repeat(v[None], 2, 0) for k, v in SCHEMA.empty().items()}
    row = np.zeros(1, np.int64)
    memory.add(page, row, row + 1, row, np.ones(1, np.float32), np.ones(1, np.float32))
    dqn.update(memory.sample(4, 0.4, np.random.default_rng(0)))
    learner, (held, replay_state) = dqn.state_dict(), memory.state()
    store(tmp_path).save(
        10,
        {"learner": learner["arrays"], "replay": held},
        {"learner": learner["state"], "replay": replay_state},
    )
    found = store(tmp_path).latest()
    again, memory_again = DQN(PolicyNetwork(SCHEMA, seed=2)), PrioritizedReplay(SCHEMA, 1 << 20)
    again.load_state_dict({"arrays": found.arrays["learner"], "state": found.state["learner"]})
    memory_again.load_state(found.arrays["replay"], found.state["replay"])
    draws = [m.sample(4, 0.4, np.random.default_rng(3)) for m in (memory, memory_again)]
    assert dqn.update(draws[0]).loss == again.update(draws[1]).loss
    ours, theirs = parameters_of(dqn.online), parameters_of(again.online)
    assert all((ours[name] == theirs[name]).all() for name in ours)


def test_an_untrained_learner_goes_through_a_checkpoint(tmp_path: Path) -> None:
    saved = DQN(PolicyNetwork(SCHEMA)).state_dict()
    store(tmp_path).save(0, {"learner": saved["arrays"]}, saved["state"])
    found = store(tmp_path).latest()
    DQN(PolicyNetwork(SCHEMA, seed=4)).load_state_dict(
        {"arrays": found.arrays["learner"], "state": found.state}
    )


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    made = store(tmp_path, keep=2)
    made.save(9, *contents())
    assert made.mark(9, 0.5)
    for step in (10, 11, 100):
        made.save(step, *contents())
    assert made.steps() == [9, 11, 100]
    assert not made.mark(11, 0.4)
    assert made.mark(11, 0.5)
    assert made.steps() == [11, 100]
    assert made.best().step == 11
    assert made.latest().step == 100
    with pytest.raises(CheckpointError, match="step 55"):
        made.mark(55, 1.0)


def test_the_note_of_the_best_holds_its_verdict_and_survives_a_kill_in_between(tmp_path: Path) -> None:
    made = store(tmp_path, keep=1)
    made.save(1, *contents())
    made.mark(1, 0.5, {"successes": 9, "trials": 10})
    made.save(3, *contents())
    # Killed while the note was being written: the earlier one stands, and its checkpoint is there.
    (made.directory / ".best.json.999.tmp").write_text('{"step": 3')
    again = store(tmp_path, keep=1)
    assert again.note() == BestNote(1, 0.5, {"successes": 9, "trials": 10})
    assert again.best().step == 1
    again.save(4, *contents())
    assert again.steps() == [1, 4]
    assert not list(made.directory.glob(".*.tmp"))
    # One whose checkpoint is gone keeps nobody from being best.
    shutil.rmtree(made.directory / "step-1")
    assert again.mark(4, 0.1)
    assert again.note() == BestNote(4, 0.1, {})
    again.unmark()
    assert again.note() is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"step": "x", "score": 1}', '{"step": 1, "score": NaN}'])
def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "best.json").write_text(text)
    assert read_note(tmp_path) is None


def test_a_damaged_checkpoint_of_full_size_does_not_push_out_a_good_one(tmp_path: Path) -> None:
    made = store(tmp_path, keep=1)
    made.keep = 2
    for step in (10, 20):
        made.save(step, *contents())
    flip(made.directory / "step-20")
    again = store(tmp_path, keep=1)
    assert again.latest().step == 10
    again.save(15, *contents())
    assert again.steps() == [15]


def truncate(path: Path) -> None:
    data = (path / "learner.npz").read_bytes()
    (path / "learner.npz").write_bytes(data[: len(data) // 2])


def flip(path: Path) -> None:
    data = bytearray((path / "learner.npz").read_bytes())
    data[len(data) // 3] ^= 1
    (path / "learner.npz").write_bytes(data)


def cut_manifest(path: Path) -> None:
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text[:50])


def edit_manifest(path: Path) -> None:
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"step": 300', '"step": 999'))


def list_manifest(path: Path) -> None:
    (path / "manifest.json").write_text("[1, 2]")


def lose_state(path: Path) -> None:
    (path / "state.json").unlink()


def lose_all(path: Path) -> None:
    for file in path.iterdir():
        file.unlink()


DAMAGE = [truncate, flip, cut_manifest, edit_manifest, list_manifest, lose_state, lose_all]


def test_what_is_being_judged_is_kept_and_not_replaced(tmp_path: Path) -> None:
    made = store(tmp_path, keep=1)
    made.save(made.free_step(100), *contents(1))
    made.hold(100)
    assert made.free_step(99) == made.free_step(100) == 101
    for step in (100, 100, 105):
        made.save(made.free_step(step), *contents(2))
    assert made.steps() == [100, 105]
    # Judged best, it stays what it was judged as, and what follows comes after it.
    made.mark(100, 0.9)
    made.release(100)
    made.save(made.free_step(100), *contents(3))
    assert made.steps() == [100, 105]
    assert made.best().state["updates"] == 5
    np.testing.assert_array_equal(made.best().arrays["replay"]["mask"], contents(1)[0]["replay"]["mask"])
    # A learner that goes on from the newest does not fall behind it.
    again = store(tmp_path, keep=1)
    assert again.latest().step == 105
    assert again.free_step(100) == 105
    assert again.free_step(106) == 106


def test_what_is_released_unmarked_goes_like_any_other(tmp_path: Path) -> None:
    made = store(tmp_path, keep=1)
    made.save(1, *contents())
    made.hold(1)
    made.save(2, *contents())
    made.release(1)
    made.release(7)
    made.save(3, *contents())
    assert made.steps() == [3]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_line_and_the_one_before_is_taken(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    made = filled(tmp_path)
    broken = made.directory / "step-300"
    damage(broken)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(broken, SCHEMA.hash)
    assert str(broken) in str(caught.value)
    assert "\n" not in str(caught.value)
    found = made.latest()
    assert found.step == 200
    assert found.skipped == (str(caught.value),)
    assert "falling back" in caplog.text
    # Saving on does not let what is visibly damaged push out what is good (a changed bit is not visible), ...
    made.save(400, *contents())
    assert set(made.steps()) >= ({200, 400} if damage is flip else {100, 200, 400})
    # ... and replaces it.
    made.save(300, *contents())
    assert load_checkpoint(broken).step == 300


def test_all_damaged_or_none_there(tmp_path: Path) -> None:
    made = filled(tmp_path)
    for step in made.steps():
        flip(made.directory / f"step-{step}")
    with pytest.raises(CheckpointError, match=r"step-300 .* no other checkpoint"):
        made.latest()
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        store(tmp_path / "elsewhere").latest()
    with pytest.raises(CheckpointError, match="has a score"):
        made.best()
    assert store(tmp_path / "elsewhere").steps() == []


def test_another_schema_is_refused_with_both_named_and_without_falling_back(tmp_path: Path) -> None:
    filled(tmp_path)
    other = CheckpointStore(tmp_path / "checkpoints", Schema(nodes=5).hash)
    with pytest.raises(CheckpointError) as caught:
        other.latest()
    assert SCHEMA.hash in str(caught.value)
    assert Schema(nodes=5).hash in str(caught.value)
    assert "step-300" in str(caught.value)


def forge(path: Path, arrays: bytes) -> None:
    """Replaces an archive and makes all checksums right again, as an attacker would."""
    import hashlib

    (path / "learner.npz").write_bytes(arrays)
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["sha256"]
    manifest["files"]["learner.npz"] = {"bytes": len(arrays), "sha256": hashlib.sha256(arrays).hexdigest()}
    manifest["sha256"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))


class _Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


def archive(payload: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as made:
        made.writestr("online.npy", payload)
    return file.getvalue()


def header(dtype: str, shape: str) -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def test_nothing_in_a_forged_checkpoint_is_executed_or_believed(tmp_path: Path) -> None:
    path = store(tmp_path).save(1, *contents())
    trap = tmp_path / "executed"
    pickled = header("|O", "(1,)") + pickle.dumps(np.array([_Touch(trap)], dtype=object))
    for payload in (
        archive(pickled),
        pickle.dumps(_Touch(trap)),
        archive(header("<f4", "(1000000000000,)") + b"1234"),
        archive(header("<f4", "(2,)") + bytes(100)),
        archive(header("<f4", "(250000000,)") + bytes(4000), zipfile.ZIP_DEFLATED),
        archive(b"\x93NUMPY\x09\x00"),
        archive(b""),
        b"",
    ):
        forge(path, payload)
        with pytest.raises(CheckpointError, match="damaged"):
            load_checkpoint(path)
    assert not trap.exists()


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = filled(tmp_path)
    with monkeypatch.context() as patch:

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match="No space left"):
            made.save(400, *contents())
        with pytest.raises(CheckpointError, match="No space left"):
            made.save(300, *contents(77))
    assert sorted(p.name for p in made.directory.iterdir()) == ["step-100", "step-200", "step-300"]
    assert made.latest().state["random"] == contents(3)[1]["random"]


def test_a_writer_killed_at_any_moment_leaves_a_good_checkpoint(tmp_path: Path) -> None:
    made = filled(tmp_path, steps=2)
    # Killed while writing, then killed between the two renames of a replacement.
    (made.directory / ".new-step-300-1").mkdir()
    (made.directory / "step-200").rename(made.directory / ".old-step-200")
    assert made.latest().step == 200
    made.save(300, *contents())
    assert sorted(p.name for p in made.directory.iterdir()) == [".old-step-200", "step-100", "step-300"]
    made.save(200, *contents())
    assert sorted(p.name for p in made.directory.iterdir()) == ["step-100", "step-200", "step-300"]


def test_what_cannot_be_saved_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    made = store(tmp_path)
    for arrays, state in (
        ({"a": {"x": np.array([object()])}}, {}),
        ({"../a": {}}, {}),
        ({"a": {"x/y": np.zeros(1)}}, {}),
        ({}, {"x": object()}),
    ):
        with pytest.raises(TypeError):
            made.save(1, arrays, state)
    assert list(made.directory.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_an_unwritable_folder_is_one_clear_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(CheckpointError, match="permissions"):
        store(tmp_path).save(1, *contents())
