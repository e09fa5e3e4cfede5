"""Which of a run's learners this one is: from the variables of torch.distributed, which pods and torchrun set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from webgym.errors import UsageError

__all__ = ["Place"]


@dataclass(frozen=True)
class Place:
    """A learner's place among those of its run."""

    rank: int
    """Rank 0 leads: it deals episodes, publishes parameters, writes checkpoints."""
    ranks: int
    address: str
    """Where rank 0 is met."""
    port: int
    local_rank: int = 0
    """Among the learners of its machine or pod: which GPU is its own."""
    ranks_here: int = 1
    """Learners on its machine or in its pod."""
    attempt: str | None = None
    """Which try of torchrun's; then torchrun, not rank 0, serves the meeting point."""
    listener: int | None = None
    """Descriptor of a socket that rank 0 listens on already."""

    @property
    def serves(self) -> bool:
        """Whether this learner opens the meeting point."""
        return self.rank == 0 and self.attempt is None

    @classmethod
    def from_env(cls, environ: Mapping[str, str], ranks: int) -> Place | None:
        """The place that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT give; None where they give none.

        Args:
            environ: the environment.
            ranks: how many learners the manifest says there are. For one alone the variables do not matter.

        Raises:
            UsageError: a variable is missing or makes no sense, or there are not as many learners as the manifest says.
        """
        if ranks == 1 and environ.get("WORLD_SIZE", "1") == "1":
            return None
        if "RANK" not in environ:
            return None
        missing = [name for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if not environ.get(name)]
        if missing:
            raise UsageError(f"RANK is set but {', '.join(missing)} is not: set all of them, or none")
        rank, world = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
        if world != ranks:
            raise UsageError(f"WORLD_SIZE is {world} but spec.learner.replicas is {ranks}: make them equal")
        if rank >= world:
            raise UsageError(f"RANK is {rank}, but WORLD_SIZE is {world}: ranks count from 0")
        agent = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        return cls(
            rank=rank,
            ranks=world,
            address=environ["MASTER_ADDR"],
            port=_number(environ, "MASTER_PORT"),
            local_rank=_number(environ, "LOCAL_RANK") if "LOCAL_RANK" in environ else 0,
            ranks_here=_number(environ, "LOCAL_WORLD_SIZE") if "LOCAL_WORLD_SIZE" in environ else 1,
            attempt=environ.get("TORCHELASTIC_RESTART_COUNT", "0") if agent else None,
        )


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ[name]
    if not text.isdecimal():
        raise UsageError(f"{name} is {text!r}: it must be a whole number")
    return int(text)
