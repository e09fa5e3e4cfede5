"""Training in turns: the browsers step once, then the learner learns from it while they wait, and so on.

What modes Lockstep and Synchronous have in common; how many browsers step at once is all that tells them apart. The
largest replay ratio decides how many updates a turn has. Nothing here depends on the time, so with one browser a run
repeats itself.
"""

from __future__ import annotations

from collections.abc import Callable

from webgym.turns import LearnerTurns
from webgym_learner.parts import StopReason, TrainerParts
from webgym_learner.trainer import Trainer

__all__ = ["TurnTrainer"]

_LOOK_SECONDS = 0.5
"""How often to look whether to stop while the browsers step; their end is heard of at once."""


class TurnTrainer(Trainer):
    """Trains until a limit is reached or a drain is asked for, in turns with the browsers.

    Args:
        parts: everything the loop works with.
        turns: the exchange with the worker.
    """

    def __init__(self, parts: TrainerParts, turns: LearnerTurns) -> None:
        super().__init__(parts)
        self._turns = turns

    def run(self, drained: Callable[[], bool]) -> StopReason:
        """See :meth:`Trainer.run`."""
        self._turns.close()
        return super().run(drained)

    def _round(self, drained: Callable[[], bool]) -> None:
        browsers = self._turns.wait(_LOOK_SECONDS)
        if browsers is None:
            if self.parts.group is not None:
                # The other learners wait for a word.
                self._learn(0, block_ms=0)
            return
        # All that the step brought was sent before it was reported.
        self._learn(0, block_ms=0)
        while self._reason_to_stop(drained) is None:
            if updates := self._updates_due():
                self._learn(updates, block_ms=0)
                continue
            self._publish_if_due()
            self._deal(browsers)
            self._turns.grant(self.parts.counters.version)
            return
