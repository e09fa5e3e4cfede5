"""What learners of one run have to have in common before they can learn together."""

from __future__ import annotations

import hashlib

from webgym.errors import UsageError
from webgym.spec import RunSpec
from webgym_learner.group import Group

__all__ = ["agree"]

_COMMON = {"seed", "observation", "policy", "learner"}


def agree(group: Group, spec: RunSpec) -> None:
    """Make sure that every learner was started with the same settings, or their updates would drift apart.

    Raises:
        UsageError: some have others.
        PeerLost: another learner is gone.
    """
    text = spec.model_dump_json(by_alias=True, include=_COMMON)
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
    if not group.agree(number):
        raise UsageError("the learners of this run have different manifests: start all of them from one")
