"""What a manifest makes of network, update and replay: the same for each learner of a run."""

from __future__ import annotations

import torch

from webgym.errors import UsageError
from webgym.schema import Schema
from webgym.spec import RunSpec
from webgym_learner.dqn import DQN, DQNConfig
from webgym_learner.heap import keep_freed_memory
from webgym_learner.replay import PrioritizedReplay
from webgym_policy.network import PolicyNetwork

__all__ = ["dqn_of", "network_of", "prepare_process", "replay_of"]

_PRECISIONS = {"auto": "auto", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_LEAST_REPLAY = 256
"""Transitions that a replay must hold at least: what one message of an actor may bring, twice over."""


def prepare_process(spec: RunSpec, seed: int) -> None:
    """Set up this process for training."""
    torch.set_num_threads(spec.learner.threads or 1)
    keep_freed_memory()
    torch.manual_seed(seed)


def network_of(spec: RunSpec, schema: Schema, seed: int) -> PolicyNetwork:
    """The network with the weights that training begins with."""
    return PolicyNetwork(schema, spec.policy.hidden_size, spec.learner.dueling, seed=seed)


def dqn_of(
    spec: RunSpec, schema: Schema, seed: int, *, judging: bool = False, local_rank: int | None = None
) -> DQN:
    """The network with its optimizer.

    Args:
        spec: of the run.
        schema: of its observations.
        seed: of the initial weights.
        judging: nothing will be trained, so no GPU is needed.
        local_rank: among the learners of this machine, each of which takes a GPU of its own as long as there are any.

    Raises:
        RunError: the device is not to be had here.
    """
    learner = spec.learner
    device: str = "cpu" if judging else learner.device
    if local_rank is not None and device != "cpu" and torch.cuda.is_available():
        device = f"cuda:{local_rank % torch.cuda.device_count()}"
    config = DQNConfig(
        learning_rate=learner.learning_rate,
        target_update_interval=learner.target_update_interval,
        double=learner.double,
        gradient_clip=learner.gradient_clip,
        average_decay=learner.average_decay,
        device=device,
        precision="auto" if judging else _PRECISIONS[learner.precision],
        compile="off" if judging else learner.compile,
    )
    return DQN(network_of(spec, schema, seed), config)


def replay_of(spec: RunSpec, schema: Schema) -> PrioritizedReplay:
    """An empty replay.

    Raises:
        UsageError: it would hold too little to begin with.
    """
    settings = spec.learner.replay
    size = int(settings.capacity_bytes)
    # An episode of one step takes the room of two: its observation and the one after it.
    least = max(2 * settings.min_transitions, _LEAST_REPLAY)
    try:
        replay = PrioritizedReplay(schema, size, settings.alpha)
    except ValueError as error:
        raise UsageError(f"spec.learner.replay.capacityBytes: {error}; raise it") from None
    if replay.capacity < least:
        enough = -(-size * least // replay.capacity // 2**20)
        raise UsageError(
            f"spec.learner.replay.capacityBytes: {settings.capacity_bytes} holds {replay.capacity} transitions of"
            f" this observation, but {least} have to fit; raise it to {enough}Mi"
        )
    return replay
