"""Two real learners that share each update: they equal one, they stop together, and neither waits for ever."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from webgym.errors import UsageError
from webgym.schema import Observation, Schema
from webgym.spec import RunSpec
from webgym_learner.agreement import agree
from webgym_learner.dqn import DQN, DivergedError, DQNConfig
from webgym_learner.group import Order, OrderKind, PeerLost, Report, join
from webgym_learner.place import Place
from webgym_learner.replay import ReplayBatch
from webgym_policy.network import PolicyNetwork, parameters_of

SCHEMA = Schema(nodes=6, texts=3, node_features=5, text_features=4, pair_features=3, goal_features=4)
CONFIG = DQNConfig(target_update_interval=3, average_decay=0.9, learning_rate=1e-3, device="cpu")
SIZE = 16


def batch_of(seed: int) -> ReplayBatch:
    rng = np.random.default_rng(seed)

    def draw() -> Observation:
        return {
            name: np.ones((SIZE, *shape), dtype)
            if name.endswith("mask")
            else rng.random((SIZE, *shape)).astype(dtype)
            for name, (shape, dtype) in SCHEMA.fields().items()
        }

    importance = rng.random(SIZE) + 0.1
    return ReplayBatch(
        obs=draw(), next_obs=draw(), action=rng.integers(0, SCHEMA.actions, SIZE),
        reward=rng.normal(size=SIZE).astype(np.float32), discount=np.full(SIZE, 0.9, np.float32),
        weight=(importance / importance.max()).astype(np.float32), slots=np.arange(SIZE),
        generations=np.arange(SIZE), scale=float(importance.max()),
    )  # fmt: skip


def half_of(batch: ReplayBatch, rank: int) -> ReplayBatch:
    """As two replays would have drawn it: each half's weights are divided by the largest of that half."""
    rows = slice(rank * SIZE // 2, (rank + 1) * SIZE // 2)
    importance = batch.weight[rows].astype(np.float64) * batch.scale
    return dataclasses.replace(
        batch,
        obs={k: v[rows] for k, v in batch.obs.items()},
        next_obs={k: v[rows] for k, v in batch.next_obs.items()},
        action=batch.action[rows],
        reward=batch.reward[rows],
        discount=batch.discount[rows],
        weight=(importance / importance.max()).astype(np.float32),
        scale=float(importance.max()),
    )


def begun(rank: int) -> DQN:
    """Rank 0 has learned a little already; the others are anywhere."""
    dqn = DQN(PolicyNetwork(SCHEMA, 8, seed=rank), CONFIG)
    for seed in range(2 if rank == 0 else 0):
        dqn.update(batch_of(100 + seed))
    return dqn


def learn(rank: int, port: int, folder: Path) -> None:
    """One of the two; what it saw goes into the folder."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    place = Place(rank, 2, "127.0.0.1", port, rank, 2)
    seen: dict[str, Any] = {}
    try:
        with join(place, torch.device("cpu"), lambda: False, arrival=200.0, patience=3.0) as group:
            spec = {"task": {"name": "shop:Shop"}, "learner": {"replicas": 2}}
            agree(group, RunSpec.model_validate(spec))
            try:
                agree(group, RunSpec.model_validate({**spec, "seed": rank}))
            except UsageError as error:
                seen["disagree"] = str(error)
            dqn = begun(rank)
            dqn.join(group)
            results = [dqn.update(half_of(batch_of(seed), rank)) for seed in range(5)]
            seen["losses"] = [r.loss for r in results]
            seen["norms"] = [r.grad_norm for r in results]
            seen["errors"] = np.stack([r.td_errors for r in results])
            seen["updates"] = dqn.updates
            for name, part in (("online", dqn.online), ("target", dqn.target), ("acting", dqn.acting)):
                seen |= {f"{name}.{k}": v for k, v in parameters_of(part).items()}
            order = group.order(Order(OrderKind.GO, 3, 7, 12.5) if rank == 0 else None)
            reports = group.report(Report(10 + rank, rank, 2 * rank, rank))
            seen["order"] = [order.kind, order.updates, order.version, order.held]
            seen["reports"] = [dataclasses.astuple(r) for r in reports]
            bad = half_of(batch_of(9), rank)
            if rank == 1:
                bad.reward[0] = np.nan
            try:
                dqn.update(bad)
            except DivergedError as error:
                seen["diverged"] = str(error)
            after = parameters_of(dqn.online)
            seen["untouched"] = all(np.array_equal(after[k], seen[f"online.{k}"]) for k in after)
            began = time.monotonic()
            if rank == 1:
                time.sleep(200.0)  # Hangs: its parent ends it.
            try:
                dqn.update(half_of(batch_of(10), rank))
            except PeerLost as error:
                seen["lost"] = str(error)
                seen["waited"] = time.monotonic() - began
                raise
    except PeerLost:
        pass
    finally:
        np.savez(folder / f"{rank}.npz", **seen)


def test_two_learners_equal_one_stop_together_and_never_wait_for_ever(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=learn, args=(rank, port, tmp_path)) for rank in range(2)]
    for process in processes:
        process.start()
    processes[0].join(240)
    assert processes[0].exitcode == 0
    processes[1].kill()
    processes[1].join(10)
    alone = begun(0)
    results = [alone.update(batch_of(seed)) for seed in range(5)]
    seen = np.load(tmp_path / "0.npz")
    np.testing.assert_allclose(seen["losses"], [r.loss for r in results], rtol=1e-5)
    np.testing.assert_allclose(seen["norms"], [r.grad_norm for r in results], rtol=1e-4)
    whole = np.stack([r.td_errors for r in results])
    np.testing.assert_allclose(seen["errors"], whole[:, : SIZE // 2], rtol=1e-3, atol=1e-5)
    assert seen["updates"] == alone.updates == 7
    for name, part in (("online", alone.online), ("target", alone.target), ("acting", alone.acting)):
        for key, value in parameters_of(part).items():
            # What several float32 updates apart in the last place come to.
            np.testing.assert_allclose(seen[f"{name}.{key}"], value, rtol=1e-3, atol=2e-5, err_msg=key)
    assert seen["order"].tolist() == [0, 3, 7, 12.5]
    assert seen["reports"].tolist() == [[10, 0, 0, 0], [11, 1, 2, 1]]
    assert "different manifests" in str(seen["disagree"])
    # Rank 1 alone saw a loss that is not finite; rank 0 ends as well, its weights as they were.
    assert "learner.learningRate" in str(seen["diverged"])
    assert seen["untouched"]
    assert "another learner" in str(seen["lost"])
    assert seen["waited"] < 60


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RANK": "1"}, "WORLD_SIZE, MASTER_ADDR, MASTER_PORT is not"),
        ({"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "replicas is 2"),
        ({"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "count from 0"),
        ({"RANK": "x", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "RANK is 'x'"),
    ],
)
def test_a_place_that_cannot_be_is_one_clear_line(environ: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Place.from_env(environ, 2)


def test_the_place_is_what_pods_and_torchrun_say() -> None:
    pod = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "learner-0.demo-learner", "MASTER_PORT": "29500"}
    place = Place.from_env(pod, 2)
    assert place == Place(1, 2, "learner-0.demo-learner", 29500)
    assert Place.from_env({**pod, "RANK": "0"}, 2) == dataclasses.replace(place, rank=0)
    assert Place.from_env({}, 2) is None
    assert Place.from_env({"RANK": "0", "WORLD_SIZE": "1"}, 1) is None
    torchrun = {**pod, "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2",
                "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "3"}  # fmt: skip
    place = Place.from_env(torchrun, 2)
    assert place is not None
    assert (place.serves, place.attempt, place.ranks_here) == (False, "3", 2)
