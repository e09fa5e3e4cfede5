"""Batches on their way to the device that computes: they hold up neither the processor nor the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from webgym_learner.replay import ReplayBatch
from webgym_policy.network import to_tensors, trim_nodes

__all__ = ["MovedBatch", "Transfer"]


@dataclass(frozen=True)
class MovedBatch:
    """A batch whose arrays are on the device, or will be by the time that its stream gets to them."""

    batch: ReplayBatch
    obs: dict[str, torch.Tensor]
    """float32 and uint8, without the nodes at the end that no page of the batch has."""
    next_obs: dict[str, torch.Tensor]
    """The same; of the rows in ``future`` alone, where that is not None."""
    columns: dict[str, torch.Tensor]
    """action, reward, discount, weight: (B,)."""
    future: torch.Tensor | None = None
    """Rows whose discount is not 0, int64 (F,), ascending: those whose next observation counts. None: all are there."""
    arrived: torch.cuda.Event | None = None
    """Recorded behind the copies."""


class Transfer:
    """Moves batches to one device.

    To a GPU they go from pinned memory on a stream of their own, as float16 and uint8: half the way for half the bytes,
    beside the kernels of the update before. On a CPU they stay where they are, and next observations that nothing
    depends on are left out: an episode's last transitions are many where episodes are short, and are not worth two
    forward passes. A GPU takes them all, as one size of batch suits it better than a smaller one.

    Args:
        device: that computes.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def begin(self, batch: ReplayBatch) -> MovedBatch:
        """Set a batch on its way; returns at once."""
        columns: dict[str, NDArray[Any]] = {
            "action": batch.action,
            "reward": batch.reward,
            "discount": batch.discount,
            "weight": batch.weight,
        }
        obs = trim_nodes(batch.obs)
        if self._stream is None:
            return self._left_here(batch, obs, columns)
        next_obs = trim_nodes(batch.next_obs)
        with torch.cuda.stream(self._stream):
            moved = MovedBatch(
                batch, self._copy(obs), self._copy(next_obs), self._copy(columns), arrived=_event()
            )
            assert moved.arrived is not None
            moved.arrived.record(self._stream)
        return moved

    @staticmethod
    def _left_here(
        batch: ReplayBatch, obs: Mapping[str, NDArray[Any]], columns: Mapping[str, NDArray[Any]]
    ) -> MovedBatch:
        next_obs, future = batch.next_obs, None
        rows = np.flatnonzero(batch.discount)
        if rows.size < batch.discount.size:
            next_obs = {name: array[rows] for name, array in next_obs.items()}
            future = torch.from_numpy(rows)
        return MovedBatch(
            batch, to_tensors(obs), to_tensors(trim_nodes(next_obs)), to_tensors(columns), future
        )

    def _copy(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, torch.Tensor]:
        copies = {}
        for name, array in arrays.items():
            pinned = torch.from_numpy(np.ascontiguousarray(array)).pin_memory()
            copy = pinned.to(self.device, non_blocking=True)
            copies[name] = copy.float() if copy.dtype == torch.float16 else copy
        return copies

    def finish(self, moved: MovedBatch) -> None:
        """Have the present stream, not the processor, wait until a batch is there."""
        if moved.arrived is None:
            return
        present = torch.cuda.current_stream(self.device)
        present.wait_event(moved.arrived)
        for part in (moved.obs, moved.next_obs, moved.columns):
            for tensor in part.values():
                # Its memory was allocated on the other stream, and may be used again only when this one is done.
                tensor.record_stream(present)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]
