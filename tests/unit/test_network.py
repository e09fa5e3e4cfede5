"""The Q-network: flat order, masks, what it is blind to, seeds, and the carriage of its parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from webgym.errors import ProtocolError
from webgym.schema import Action, ActionKind, Observation, Schema
from webgym_policy.network import (
    PolicyNetwork,
    _pool,
    infer,
    load_parameters,
    mask_invalid,
    parameters_of,
    to_tensors,
    trim_nodes,
)
from webgym_policy.stem import FrameStem

SCHEMA = Schema(nodes=6, texts=3)


def observations(count: int, seed: int = 0, schema: Schema = SCHEMA) -> Observation:
    rng = np.random.default_rng(seed)
    return {
        name: rng.random((count, *shape)).astype(np.float32)
        if dtype == np.float32
        else rng.integers(0, 2 if name != "frame" else 256, (count, *shape)).astype(np.uint8)
        for name, (shape, dtype) in schema.fields().items()
    }


def with_full_masks(batch: Observation) -> Observation:
    return {k: np.ones_like(v) if k.endswith("mask") else v for k, v in batch.items()}


def test_every_action_has_its_place_in_the_flat_order() -> None:
    network = PolicyNetwork(SCHEMA, seed=1)
    batch = with_full_masks(observations(2))
    before = infer(network, batch)
    assert before.shape == (2, SCHEMA.actions)
    # Raise what one head says of one kind; exactly that kind's actions rise against the others.
    kinds = [ActionKind.CLICK, ActionKind.DOUBLE_CLICK, ActionKind.HOVER, ActionKind.CLEAR]
    kinds += [ActionKind.TYPE, ActionKind.SELECT_OPTION]
    for row, kind in enumerate(kinds):
        changed = PolicyNetwork(SCHEMA, seed=1, dueling=False)
        reference = infer(changed, batch)
        with torch.no_grad():
            changed.node_head.bias[row] += 5.0
        difference = (infer(changed, batch) - reference) > 2.5
        assert (difference == (SCHEMA.kind_of == kind)).all(), kind


def permute_nodes(batch: Observation, order: np.ndarray) -> Observation:
    moved = dict(batch)
    for name in ("dom", "node_mask", "pair"):
        moved[name] = batch[name][:, order]
    return moved


def test_permuting_nodes_or_texts_permutes_the_values_and_nothing_else() -> None:
    network = PolicyNetwork(SCHEMA, seed=2)
    batch = with_full_masks(observations(3, seed=2))
    order, words = np.random.default_rng(1).permutation(SCHEMA.nodes), np.array([2, 0, 1])
    moved = permute_nodes(batch, order)
    moved["text"], moved["pair"] = moved["text"][:, words], moved["pair"][:, :, words]
    q, q_moved = infer(network, batch), infer(network, moved)
    for flat in range(SCHEMA.actions):
        kind, node, text = SCHEMA.decode(flat)
        if flat < SCHEMA.global_offset:
            source = SCHEMA.encode(Action(kind, int(order[node]), int(words[text])))
        else:
            source = flat
        np.testing.assert_allclose(q_moved[:, flat], q[:, source], atol=1e-5)


def test_what_stands_in_masked_nodes_does_not_matter_to_the_others() -> None:
    network = PolicyNetwork(SCHEMA, seed=3)
    batch = with_full_masks(observations(2, seed=3))
    batch["node_mask"][:, 4:] = 0
    batch["action_mask"][:, SCHEMA.node_of >= 4] = 0
    noisy = {k: v.copy() for k, v in batch.items()}
    noisy["dom"][:, 4:] = 77.0
    valid = batch["action_mask"][0] == 1
    np.testing.assert_allclose(infer(network, noisy)[:, valid], infer(network, batch)[:, valid], atol=1e-5)


def test_trimming_nodes_changes_no_valid_value() -> None:
    network = PolicyNetwork(SCHEMA, seed=3)
    batch = with_full_masks(observations(3, seed=3))
    batch["node_mask"][:] = [[1, 1, 0, 0, 0, 0], [1, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0]]
    for name in ("dom", "pair"):
        batch[name][batch["node_mask"] == 0] = 0
    absent = np.repeat(batch["node_mask"], 4, 0).reshape(3, 4, 6) == 0
    batch["action_mask"][:, : SCHEMA.text_offset][absent.reshape(3, -1)] = 0
    batch["action_mask"][:, SCHEMA.text_offset : SCHEMA.global_offset] = np.repeat(
        np.repeat(batch["node_mask"], 2, 0).reshape(3, 12), 3, 1
    )
    trimmed = trim_nodes(batch)
    assert trimmed["dom"].shape[1] == trimmed["pair"].shape[1] == trimmed["node_mask"].shape[1] == 4
    valid = batch["action_mask"] == 1
    assert valid[0].sum() == 2 * 4 + 2 * 2 * 3 + 6
    with torch.no_grad():
        full, short = (network(to_tensors(b)).numpy() for b in (batch, trimmed))
    assert full.shape == short.shape
    np.testing.assert_allclose(short[valid], full[valid], atol=1e-5)
    nowhere = trim_nodes({k: v[2:] for k, v in batch.items()})
    assert nowhere["dom"].shape[1] == 1


def test_the_dueling_mean_is_over_valid_actions_and_survives_none() -> None:
    network = PolicyNetwork(SCHEMA, seed=4)
    batch = with_full_masks(observations(3, seed=4))
    batch["action_mask"][0, 10:] = 0
    batch["action_mask"][2] = 0
    q = infer(network, batch)
    assert np.isfinite(q).all()
    network.dueling = False
    advantage = infer(network, batch)
    for row, count in ((0, 10), (1, SCHEMA.actions)):
        offset = q[row] - advantage[row]
        assert np.ptp(offset) < 1e-5
        # Mean over valid Q = V, so V is the offset plus the advantages' valid mean, the same for both masks'
        # rows.
        assert q[row, :count].mean() == pytest.approx(offset[0] + advantage[row, :count].mean(), abs=1e-5)


def test_a_text_is_tied_to_its_node() -> None:
    """Changing how one word fits one node moves the value of that pair, and of that pair alone."""
    network = PolicyNetwork(SCHEMA, seed=5, dueling=False)
    batch = with_full_masks(observations(1, seed=5))
    changed = {k: v.copy() for k, v in batch.items()}
    # Below the maxima, so that the pooled encoders see no difference.
    batch["pair"][:] = np.where(np.arange(3)[:, None] == 0, 1.0, 0.3)
    batch["pair"][0, 0] = 1.0
    changed["pair"] = batch["pair"].copy()
    changed["pair"][0, 3, 2] = 0.9
    moved = np.flatnonzero(np.abs(infer(network, changed) - infer(network, batch))[0] > 1e-6)
    pairs = {SCHEMA.encode(Action(kind, 3, 2)) for kind in (ActionKind.TYPE, ActionKind.SELECT_OPTION)}
    assert set(moved.tolist()) == pairs


def test_pooling_has_the_gradient_of_sum_and_max_ties_included() -> None:
    rng = torch.Generator().manual_seed(0)
    node = torch.randint(0, 4, (5, 6, 7), generator=rng).float().requires_grad_()
    count = torch.full((5, 1), 6.0)
    weights = torch.rand((2, 5, 7), generator=rng)
    mean, best = _pool(node, count)
    (ours,) = torch.autograd.grad((mean * weights[0] + best * weights[1]).sum(), node)
    reference = node.mean(1) * weights[0] + node.amax(1) * weights[1]
    assert torch.allclose(reference, mean * weights[0] + best * weights[1])
    (theirs,) = torch.autograd.grad(reference.sum(), node)
    assert torch.allclose(ours, theirs)


def test_text_scores_are_those_of_the_mlp_written_out() -> None:
    network = PolicyNetwork(SCHEMA, seed=6)
    rng = torch.Generator().manual_seed(1)
    pair, node, text = (
        torch.randn(shape, generator=rng)
        for shape in ((2, 6, 3, SCHEMA.pair_features), (2, 6, network.fit_size), (2, 3, network.fit_size))
    )
    hidden = torch.relu(network.pair_in(pair) + node.unsqueeze(2) + text.unsqueeze(1))
    written_out = network.pair_out(hidden).permute(0, 3, 1, 2)
    assert torch.allclose(network._fit(pair, node, text), written_out, atol=1e-5)


def test_initial_weights_are_a_function_of_the_seed() -> None:
    torch.manual_seed(123)
    state = torch.get_rng_state()
    a, b, c = (parameters_of(PolicyNetwork(SCHEMA, seed=s)) for s in (7, 7, 8))
    assert torch.equal(state, torch.get_rng_state())
    assert all((a[k] == b[k]).all() for k in a)
    assert any((a[k] != c[k]).any() for k in a)


def test_parameters_travel_and_make_an_equal_network() -> None:
    source, target = PolicyNetwork(SCHEMA, seed=1), PolicyNetwork(SCHEMA, seed=2)
    batch = observations(4)
    state = parameters_of(source)
    load_parameters(target, state)
    np.testing.assert_array_equal(infer(source, batch), infer(target, batch))
    # A copy, not a view: training on does not change what was taken.
    with torch.no_grad():
        source.page.bias.add_(1.0)
    assert (state["page.bias"] == parameters_of(target)["page.bias"]).all()


def test_parameters_that_do_not_fit_are_refused_whole() -> None:
    network = PolicyNetwork(SCHEMA, seed=1)
    before = parameters_of(network)
    other = parameters_of(PolicyNetwork(SCHEMA, hidden_size=32))
    with pytest.raises(ProtocolError, match="hiddenSize"):
        load_parameters(network, other)
    missing = parameters_of(PolicyNetwork(SCHEMA, seed=2))
    del missing["page.bias"]
    with pytest.raises(ProtocolError, match=r"page\.bias"):
        load_parameters(network, missing)
    poisoned = parameters_of(PolicyNetwork(SCHEMA, seed=2))
    poisoned["page.bias"][0] = np.nan
    with pytest.raises(ProtocolError, match="not finite"):
        load_parameters(network, poisoned)
    assert all((before[k] == v).all() for k, v in parameters_of(network).items())


def test_the_frame_is_seen_when_the_schema_has_one() -> None:
    schema = Schema(nodes=6, texts=3, frame=(224, 224, 3))
    network = PolicyNetwork(schema, seed=1)
    batch = with_full_masks(observations(2, schema=schema))
    dark = {**batch, "frame": np.zeros_like(batch["frame"])}
    assert np.abs(infer(network, batch) - infer(network, dark)).max() > 1e-4
    loss = network(to_tensors(batch)).sum()
    loss.backward()
    assert all(p.grad is not None for p in network.stem.parameters())  # type: ignore[union-attr]


def test_mask_invalid() -> None:
    q = mask_invalid(torch.ones(1, 3), torch.tensor([[1, 0, 1]], dtype=torch.uint8))
    assert q.tolist() == [[1.0, -float("inf"), 1.0]]


def test_half_precision_observations_give_the_same_values() -> None:
    network = PolicyNetwork(SCHEMA)
    batch = observations(2)
    batch = {
        k: (np.round(v * 256) / 256).astype(v.dtype) if v.dtype == np.float32 else v for k, v in batch.items()
    }
    half = {k: v.astype(np.float16) if v.dtype == np.float32 else v for k, v in batch.items()}
    np.testing.assert_array_equal(infer(network, half), infer(network, batch))


def test_the_frame_taken_a_few_at_a_time_is_the_convolution_and_has_its_gradient() -> None:
    torch.manual_seed(0)
    stem = FrameStem((96, 104, 3), 8)
    frame = torch.randint(0, 256, (11, 96, 104, 3), dtype=torch.uint8)
    seen = stem(frame)
    grown = torch.randn_like(seen)
    seen.backward(grown)
    got = {name: parameter.grad.clone() for name, parameter in stem.named_parameters()}
    stem.zero_grad()
    whole = torch.relu(stem.out(stem.layers(frame.permute(0, 3, 1, 2).float() / 255)))
    torch.testing.assert_close(seen, whole)
    whole.backward(grown)
    for name, parameter in stem.named_parameters():
        torch.testing.assert_close(got[name], parameter.grad, rtol=1e-3, atol=1e-5)
