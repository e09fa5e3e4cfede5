"""An exported policy does what the policy does; what cannot be exported is one line."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from webgym.benches.wire import recorded_episode
from webgym.errors import CheckpointError, OutputError, UsageError, WebGymError
from webgym.schema import NODE_KINDS, TEXT_KINDS, Action, ActionKind, Observation, Schema
from webgym_learner.checkpoint import CheckpointStore
from webgym_learner.export import ExportCommand
from webgym_policy.description import described_network, description_of
from webgym_policy.network import PolicyNetwork, infer, parameters_of
from webgym_policy.selection import greedy

FRAME = (64, 64, 3)


def pages(schema: Schema, count: int, seed: int) -> Observation:
    """Observations as they come from pages: nodes first, and actions only on those that are there."""
    rng = np.random.default_rng(seed)
    made: Observation = {
        name: rng.random((count, *spec.shape)).astype(np.float32)
        if spec.dtype == np.float32
        else rng.integers(0, 256, (count, *spec.shape)).astype(np.uint8)
        for name, spec in schema.fields().items()
    }
    present = rng.integers(0, schema.nodes + 1, count)
    node = np.arange(schema.nodes) < present[:, None]
    made["node_mask"] = node.astype(np.uint8)
    made["dom"] *= node[:, :, None]
    made["pair"] *= node[:, :, None, None]
    mask = rng.random((count, schema.actions)) < 0.5
    mask[:, : schema.text_offset] &= np.tile(node, len(NODE_KINDS))
    mask[:, schema.text_offset : schema.global_offset] &= np.tile(
        node.repeat(schema.texts, 1), len(TEXT_KINDS)
    )
    mask[0] = False
    made["action_mask"] = mask.astype(np.uint8)
    return made


def saved(folder: Path, schema: Schema, *, described: bool = True) -> tuple[Path, PolicyNetwork]:
    network = PolicyNetwork(schema, 16, seed=3, dueling=False)
    state: dict[str, Any] = {"counters": {"steps": 5}, "dqn": {"updates": 7}}
    if described:
        state["network"] = description_of(network)
    store = CheckpointStore(folder, schema.hash)
    return store.save(5, {"acting": parameters_of(network)}, state), network


def export(source: Path, out: Path, *, as_json: bool = False, which: str = "best") -> int:
    return ExportCommand().run(argparse.Namespace(source=source, out=out, json=as_json, checkpoint=which))


@pytest.mark.parametrize("frame", [None, FRAME], ids=["dom", "frame"])
def test_the_model_chooses_what_the_policy_chooses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], frame: tuple[int, int, int] | None
) -> None:
    schema = Schema(frame=frame)
    path, network = saved(tmp_path / "checkpoints", schema)
    assert export(path, tmp_path / "policy.onnx", as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    session = onnxruntime.InferenceSession((tmp_path / "policy.onnx").read_bytes())
    assert {i.name: i.shape for i in session.get_inputs()} == {
        k: v["shape"] for k, v in told["inputs"].items()
    }
    assert session.get_modelmeta().custom_metadata_map["schema"] == schema.hash
    assert session.get_modelmeta().custom_metadata_map["updates"] == "7"
    for count, seed in ((1, 0), (7, 1), (256 if frame is None else 32, 2)):
        seen = pages(schema, count, seed)
        action, flat, q = session.run(["action", "flat_action", "q"], dict(seen))
        want, mask = infer(network, seen), seen["action_mask"] != 0
        np.testing.assert_allclose(q[mask], want[mask], atol=1e-5)
        assert np.isneginf(q[~mask]).all()
        chosen = greedy(want, mask, schema, np.random.default_rng(0))
        # Where rounding could turn the order of the two best, either will do.
        assert (flat == chosen).mean() >= 0.99
        gap = np.where(mask, want, -np.inf).max(1) - np.take_along_axis(want, flat[:, None], 1)[:, 0]
        assert (gap[mask.any(1)] <= 1e-5).all()
        assert mask[np.arange(count), flat][mask.any(1)].all()
        assert [Action(ActionKind(k), n, t) for k, n, t in action] == [schema.decode(int(f)) for f in flat]
        assert action[0].tolist() == [ActionKind.WAIT, 0, 0]  # nothing was valid there
    if frame is None:
        _, episode = recorded_episode(frames=False)
        seen = {name: array.copy() for name, array in episode.unpacked().items()}
        want = np.where(seen["action_mask"] != 0, infer(network, seen), -np.inf)
        assert session.run(["flat_action"], dict(seen))[0].tolist() == want.argmax(1).tolist()


def test_a_description_makes_an_equal_network() -> None:
    network = PolicyNetwork(Schema(nodes=3, frame=FRAME), 8, dueling=False, match_size=4, fit_size=2)
    described = json.loads(json.dumps(description_of(network)))
    again = described_network(described)
    assert again.schema == network.schema
    assert {k: v.shape for k, v in again.state_dict().items()} == {
        k: v.shape for k, v in network.state_dict().items()
    }


def refused(kind: type[WebGymError], words: str, source: Path, out: Path) -> None:
    with pytest.raises(kind, match=words) as caught:
        export(source, out)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_exported_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "policy.onnx"
    refused(CheckpointError, "does not exist", tmp_path / "nowhere", out)
    refused(CheckpointError, "is no checkpoint", tmp_path, out)
    path, _ = saved(tmp_path / "checkpoints", Schema(nodes=3))
    refused(OutputError, "is a folder", path, tmp_path)
    (tmp_path / "file").touch()
    bare, _ = saved(tmp_path / "bare", Schema(nodes=3), described=False)
    refused(CheckpointError, "does not say what network", bare, out)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.yaml").write_text(
        "apiVersion: webgym.io/v1alpha1\nkind: WebGymRun\nmetadata: {name: demo}\n"
        "spec: {task: {name: miniwob.click-test}}\n"
    )
    refused(CheckpointError, "has no checkpoint", tmp_path / "run", out)
    shutil.copytree(path, tmp_path / "damaged")
    (tmp_path / "damaged" / "acting.npz").write_bytes(b"nonsense")
    refused(CheckpointError, "is damaged", tmp_path / "damaged", out)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    refused(UsageError, r"needs the package onnxscript.*webgym-platform\[export\]", path, out)
    assert not out.exists()
