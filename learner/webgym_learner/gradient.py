"""The gradient of several learners as one vector, averaged in one message."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from webgym_learner.group import Group

__all__ = ["SharedGradient"]

_FIGURES = 3
"""Loss, mean value, and who saw a loss that is not finite: they travel with the gradient."""


class SharedGradient:
    """Averages gradients over a group.

    Each parameter's ``.grad`` is a view of one vector, so nothing is copied, and a network of this size is one message.
    What every learner has to know before it may act on the gradient is in the same message: one that sees a loss that
    is not finite tells the others by taking part, not by staying away.

    Args:
        group: the learners.
        parameters: of the network, float32, on one device.
    """

    def __init__(self, group: Group, parameters: Sequence[torch.Tensor]) -> None:
        self._group = group
        size = sum(parameter.numel() for parameter in parameters)
        device = parameters[0].device
        self._message = torch.zeros(size + _FIGURES, device=device)
        self._gradient, self._figures = torch.split(self._message, [size, _FIGURES])
        parts = torch.split(self._gradient, [parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def clear(self) -> None:
        """Set the gradient to zero, before a backward pass adds to it."""
        self._message.zero_()

    def average(self, loss: float, q_mean: float, share: float, *, finite: bool) -> tuple[float, float, bool]:
        """Average over all learners: the gradient in place, and the figures.

        Args:
            loss: of this learner's part of the batch.
            q_mean: likewise.
            share: what the importance weights of this part have to be multiplied with.
            finite: whether the loss is.

        Returns:
            Mean loss, mean value, and whether every learner's loss is finite.

        Raises:
            PeerLost: another learner is gone.
        """
        if finite:
            self._gradient.mul_(share)
            self._figures.copy_(torch.tensor([loss * share, q_mean, 0.0]))
        else:
            self.clear()
            self._figures[2] = 1.0
        self._group.sum(self._message)
        self._message.div_(self._group.ranks)
        mean_loss, mean_q, lost = self._figures.tolist()
        return mean_loss, mean_q, lost == 0.0
