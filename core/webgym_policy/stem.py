"""The network's eye: convolutions over the frame, cheap enough for a CPU.

A batch of frames is small as bytes and large as floats: 128 of them take 77 MB, which a processor spends more time
moving about than multiplying. So on a CPU the first layer takes a few frames at a time: their floats stay in its cache.
It keeps the bytes for the backward pass, and widens them once more there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.grad import conv2d_weight

__all__ = ["FrameStem"]

_FRAMES_AT_ONCE = 4


class FrameStem(nn.Module):
    """Convolutions over the frame, uint8 (B, 224, 224, 3) -> float (B, H); 4 million products a frame.

    Args:
        frame: height, width, channels.
        hidden_size: width of what comes out.
    """

    def __init__(self, frame: tuple[int, int, int], hidden_size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            # The first convolution tiles the frame without overlap: that is where the pixels are, so it is
            # the cost.
            nn.Conv2d(frame[2], 16, 8, stride=8),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            size = self.layers(torch.zeros(1, frame[2], frame[0], frame[1])).shape[1]
        self.out = nn.Linear(size, hidden_size)

    def forward(self, frame: Tensor) -> Tensor:
        """What is seen; bytes stay bytes until here."""
        first = self.layers[0]
        assert isinstance(first, nn.Conv2d)
        # One product with the few weights instead of one with every pixel.
        weight = first.weight * (1.0 / 255.0)
        # NHWC bytes seen as NCHW are already in channels-last order: no copy but the one to float.
        pixels = frame.permute(0, 3, 1, 2)
        if frame.device.type == "cpu" and not torch.compiler.is_compiling():
            seen = _Tiles.apply(pixels, weight, first.bias)  # type: ignore[no-untyped-call]
        else:
            seen = F.conv2d(pixels.to(weight.dtype), weight, first.bias, stride=first.stride)
        hidden: Tensor = F.relu(self.out(self.layers[1:](seen)))
        return hidden


class _Tiles(torch.autograd.Function):
    """A convolution of bytes whose stride is its size, a few frames at a time."""

    @staticmethod
    def forward(ctx: Any, pixels: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(pixels, weight)
        stride = weight.shape[2:]
        return torch.cat(
            [
                F.conv2d(part.to(weight.dtype), weight, bias, stride=stride)
                for part in torch.split(pixels, _FRAMES_AT_ONCE)
            ]
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor]:
        pixels, weight = ctx.saved_tensors
        gradient = gradients[0].to(weight.dtype)
        of_weight = torch.zeros_like(weight)
        for part, its in zip(
            torch.split(pixels, _FRAMES_AT_ONCE), torch.split(gradient, _FRAMES_AT_ONCE), strict=True
        ):
            floats = part.to(weight.dtype)
            of_weight += conv2d_weight(floats, weight.shape, its, weight.shape[2:])  # type: ignore[no-untyped-call]
        return None, of_weight, gradient.sum((0, 2, 3))
