"""torch.compile where it pays, and never at the price of a run."""

from __future__ import annotations

import logging
import time
from typing import Any

import torch

from webgym_policy.network import PolicyNetwork, to_tensors

__all__ = ["compiled", "wants_compiling"]

logger = logging.getLogger(__name__)

_ROWS = 2
"""Rows of the batch that tries it out; sizes are left open, so any other will do without compiling anew."""


def wants_compiling(setting: str, device: torch.device) -> bool:
    """Whether ``learner.compile`` asks for it on this device: auto does on a GPU."""
    return setting == "on" or (setting == "auto" and device.type == "cuda")


def compiled(network: PolicyNetwork, *, trains: bool) -> Any:
    """The network's forward pass, compiled; as it is where that fails, which costs speed alone.

    Args:
        network: its parameters stay its own.
        trains: whether gradients will be wanted.
    """
    device = next(network.parameters()).device
    began = time.monotonic()
    forward = torch.compile(network, dynamic=True)
    observation = {name: array[None].repeat(_ROWS, 0) for name, array in network.schema.empty().items()}
    try:
        with torch.set_grad_enabled(trains):
            q = forward(to_tensors(observation, device))
            if trains:
                torch.autograd.grad(q.sum(), list(network.parameters()), allow_unused=True)
    # Whatever the compiler, its backend or the system's own compiler may raise.
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        logger.warning("the network is not compiled, which makes updates slower: %s", reason)
        return network
    logger.info("compiled the network in %.0f s", time.monotonic() - began)
    return forward
