"""What must hold on the machine that learns, before a run writes or starts anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from webgym.spec import RunManifest

__all__ = ["check_device"]


def check_device(manifest: RunManifest) -> None:
    """Check that the device which the learner is to have is there.

    Raises:
        RunError: PyTorch sees none.
    """
    device = manifest.spec.learner.device
    if device in ("auto", "cpu"):
        return  # There always is one, and PyTorch takes seconds to import.
    from webgym_learner.dqn import choose_device

    choose_device(device)
