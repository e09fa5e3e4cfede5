"""What an agent remembers of its own episode: the page alone does not show what was clicked before."""

from __future__ import annotations

from dataclasses import dataclass, field

from webgym.schema import ActionKind

__all__ = ["EpisodeMemory"]


@dataclass
class EpisodeMemory:
    """Counters of one episode, reset with it."""

    limit: int
    """Steps after which the episode is truncated."""
    step: int = 0
    acted: dict[int, int] = field(default_factory=dict)
    """How often each node, by the observer's id, was acted on."""
    last_node: int | None = None
    last_kind: ActionKind | None = None
    last_invalid: bool = False
    unsettled: bool = False
    """The page was still changing when it was last looked at."""
    navigations: int = 0
    """Pages of the history that the agent itself has opened: how far "back" may go."""

    def note(self, kind: ActionKind, node_id: int | None, *, invalid: bool) -> None:
        """Count one step."""
        self.step += 1
        self.last_kind = kind
        self.last_invalid = invalid
        self.last_node = None if invalid else node_id
        if node_id is not None and not invalid:
            self.acted[node_id] = self.acted.get(node_id, 0) + 1
