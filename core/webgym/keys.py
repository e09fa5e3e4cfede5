"""Names of everything a run keeps in Redis.

All names of one run share the hash tag ``{uid}``: they live in one cluster slot, so that a Lua script may
touch any of them, and a run that is created anew under the same name never meets what an earlier one left.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from webgym.errors import UsageError

__all__ = ["PREFIX", "Keys"]

PREFIX = "webgym:"
"""What every key and channel starts with; an ACL user needs ``~webgym:*`` and ``&webgym:*``."""

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Keys:
    """The keys of one run.

    Args:
        uid: the run's identity; letters, digits, dot, underscore, dash.

    Raises:
        UsageError: the identity has other characters (a brace would break the hash tag).
    """

    uid: str

    def __post_init__(self) -> None:
        if not _UID.fullmatch(self.uid):
            raise UsageError(
                f"run uid {self.uid[:80]!r} is not usable: give 1 to 64 letters, digits, dots, dashes or "
                "underscores"
            )

    def of(self, name: str) -> str:
        """The run's key of that name."""
        return f"{PREFIX}{{{self.uid}}}:{name}"

    # --- queue -------------------------------------------------------------------------------------------

    @cached_property
    def queue(self) -> tuple[str, ...]:
        """KEYS of every queue script, in the order of ``lua/queue.lua``."""
        names = (
            "queued",
            "leases",
            "tasks",
            "order",
            "attempts",
            "holders",
            "reasons",
            "done",
            "dead",
            "tally",
        )
        arrived = self.of("queue:arrived")
        return (
            *(self.of(f"queue:{n}") for n in names),
            *(self.results, self.counters, self.queue_channel, arrived),
        )

    @cached_property
    def queue_channel(self) -> str:
        """Channel that tells those who wait for tasks that some were queued."""
        return self.of("queue:added")

    @cached_property
    def results(self) -> str:
        """Stream of what completed or died, one entry for each episode."""
        return self.of("results")

    @cached_property
    def counters(self) -> str:
        """Hash of numbers that only completed episodes raise: env_steps, episodes, successes, ..."""
        return self.of("counters")

    # --- parameters --------------------------------------------------------------------------------------

    @cached_property
    def params_index(self) -> str:
        """Sorted set of the versions that are kept."""
        return self.of("params:index")

    @cached_property
    def params_pinned(self) -> str:
        """Set of the versions that trimming leaves alone."""
        return self.of("params:pinned")

    @cached_property
    def params_generation(self) -> str:
        """The highest learner generation that ever published."""
        return self.of("params:generation")

    @cached_property
    def params_channel(self) -> str:
        """Channel that each new version is announced on."""
        return self.of("params:published")

    def params_version(self, version: int | str) -> str:
        """Hash of one version: its header and its chunks."""
        return self.of(f"params:v:{version}")

    # --- experience --------------------------------------------------------------------------------------

    @cached_property
    def experience(self) -> str:
        """Stream of transition batches on their way to the learner."""
        return self.of("experience")

    @cached_property
    def experience_backlog(self) -> str:
        """How many transitions are in the stream."""
        return self.of("experience:backlog")

    @cached_property
    def experience_seen(self) -> str:
        """Sorted set of the batches that were pushed lately, so that a repeated push adds nothing."""
        return self.of("experience:seen")

    @cached_property
    def experience_channel(self) -> str:
        """Channel that tells waiting writers the backlog after each acknowledgement."""
        return self.of("experience:acknowledged")

    # --- turns of worker and learner ---------------------------------------------------------------------

    @cached_property
    def turns_reports(self) -> str:
        """Hash: browser process to how many browsers of how many have stepped and wait."""
        return self.of("turns:reports")

    @cached_property
    def turns_bell(self) -> str:
        """List that grows with each report; the learner waits at it."""
        return self.of("turns:bell")

    @cached_property
    def turns_open(self) -> str:
        """Exists where nobody takes turns any more."""
        return self.of("turns:open")

    def turns_granted(self, process: str) -> str:
        """List with the turn that a browser process was granted and has not taken."""
        return self.of(f"turns:granted:{process}")

    # --- the run as a whole ------------------------------------------------------------------------------

    @cached_property
    def control(self) -> str:
        """Hash: phase (train, evaluate, done, failed), its reason, and the checkpoint that was gone on from. The
        learner writes it.
        """
        return self.of("control")

    @cached_property
    def notices(self) -> str:
        """List of lines that the person who started the run should read, as JSON texts."""
        return self.of("notices")

    @cached_property
    def progress(self) -> str:
        """Hash of the learner's numbers."""
        return self.of("progress")

    @cached_property
    def members(self) -> str:
        """Hash: program id to its latest heartbeat, as JSON."""
        return self.of("members")

    @cached_property
    def film(self) -> str:
        """Prefix of the hashes that hold an episode's screenshots; the episode's id follows."""
        return self.of("film")

    @cached_property
    def everything(self) -> str:
        """Pattern over all keys of the run, for SCAN."""
        return self.of("*").replace("[", r"\[")
