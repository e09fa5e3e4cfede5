"""A learner that does not lead: it holds its part of the experience and makes its part of each update."""

from __future__ import annotations

import logging

import numpy as np
from redis import Redis

from webgym.broker import connect
from webgym.connection import broker_config
from webgym.control import read_control
from webgym.experience import ExperienceReader
from webgym.keys import Keys
from webgym.program import Drain, ProgramContext
from webgym.schema import observation_schema
from webgym_learner.agreement import agree
from webgym_learner.blueprint import dqn_of, prepare_process, replay_of
from webgym_learner.group import OrderKind, PeerLost, Report, join
from webgym_learner.place import Place
from webgym_learner.pulse import Pulse
from webgym_learner.share import Share

__all__ = ["Follower"]

logger = logging.getLogger(__name__)

_MOST_BATCHES = 256
_WAIT_MS = 20
_PHASE_SECONDS = 1.0


class Follower:
    """Trains as rank 0 says, then stays until the run is done: learners of a run live and end together.

    Args:
        context: environment of the program.
        drain: the wish to end.
        place: among the learners of the run; not rank 0.
    """

    def __init__(self, context: ProgramContext, drain: Drain, place: Place) -> None:
        self._spec = context.manifest.spec
        self._drain = drain
        self._place = place
        self._client: Redis = connect(broker_config(self._spec.redis, context.redis_url))
        self._keys = Keys(context.run_uid)
        # torchrun starts all learners with the environment of one.
        self.pulse = Pulse(self._client, self._keys.members, f"learner-{place.rank}")

    def run(self) -> int:
        """Train, then wait for the end; returns the exit code.

        Raises:
            DivergedError: the loss of a learner is not finite.
            PeerLost: another learner of the run is gone.
            BrokerError: Redis is gone.
            UsageError: rank 0 has another manifest.
        """
        while not self._drained():
            phase = self._phase()
            if phase == "done":
                return 0
            # A leader that takes over may have nothing left to do but to evaluate.
            if phase != "evaluate":
                try:
                    if self._train() is OrderKind.DRAIN:
                        return 0
                except PeerLost:
                    # Learners that are asked to end together need not wait for each other.
                    if not self._drain.requested:
                        raise
            self._drain.wait(_PHASE_SECONDS)
        return 0

    def _train(self) -> OrderKind:
        spec, schema, place = self._spec, observation_schema(self._spec.observation), self._place
        prepare_process(spec, spec.seed)
        dqn = dqn_of(spec, schema, spec.seed, local_rank=place.local_rank)
        replay = replay_of(spec, schema)
        reader = ExperienceReader(self._client, self._keys, schema, rank=place.rank, ranks=place.ranks)
        with join(place, dqn.device, self._drained) as group:
            agree(group, spec)
            dqn.join(group)
            # Each learner draws differently, and another life of it differently again.
            rng = np.random.default_rng([spec.seed, place.rank, dqn.updates])
            share = Share(spec, dqn, replay, rng, place.ranks)
            logger.info("learner %d of %d begins at update %d", place.rank, place.ranks, dqn.updates)
            while True:
                order = group.order()
                drained = self._drained()
                if order.kind is not OrderKind.GO:
                    return order.kind
                entries = reader.read(_MOST_BATCHES, 0 if order.updates else _WAIT_MS)
                if entries:
                    reader.ack([id for id, _ in entries])
                taken = share.take((batch for _, batch in entries), order.version)
                for _ in range(order.updates):
                    share.update(order.held)
                group.report(Report(len(replay), taken.added, taken.stale, int(drained)))

    def _phase(self) -> str:
        (phase,) = read_control(self._client, self._keys, "phase")
        return str(phase or "")

    def _drained(self) -> bool:
        self.pulse.moved()
        return self._drain.requested
