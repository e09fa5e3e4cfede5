"""The gradient of several learners as one vector, averaged in one message."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from webgym_learner.group import Group

__all__ = ["SharedGradient"]

_FIGURES = 2
"""Loss and mean value travel with the gradient."""


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

    def average(self, figures: torch.Tensor, errors: torch.Tensor, share: float) -> torch.Tensor:
        """Average over all learners: the gradient in place, and what is returned.

        Args:
            figures: loss and mean value of this learner's part of the batch, (2,).
            errors: its TD errors, (B,).
            share: what the importance weights of this part have to be multiplied with.

        Returns:
            Loss and mean value of the whole batch, (2,); not finite if anything of any learner's is not.

        Raises:
            PeerLost: another learner is gone.
        """
        finite = torch.isfinite(errors).all() & torch.isfinite(figures).all()
        self._gradient.mul_(share)
        self._figures[0] = figures[0] * share
        self._figures[1] = torch.where(finite, figures[1], torch.nan)
        self._group.sum(self._message)
        self._message.div_(self._group.ranks)
        return self._figures.clone()
