"""Events that a person reads in ``kubectl describe``: few, and none said twice in a row."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

from webgym.spec import API_VERSION, KIND
from webgym_operator.api import Api, ApiError
from webgym_operator.plan import Note, Plan
from webgym_operator.run import Object, Run, time_text

__all__ = ["Recorder", "notes_of"]

logger = logging.getLogger(__name__)

_AGAIN_SECONDS = 600.0
"""Until the same is said again of the same run."""
_REMEMBERED = 5000


def notes_of(plan: Plan) -> list[Note]:
    """What a plan says, and what it does to pods."""
    made = [a.body["metadata"]["name"] for a in plan.creates if a.body["kind"] == "Pod"]
    notes = list(plan.notes)
    if made:
        notes.append(Note("PodsCreated", f"created {_some(made)}"))
    by_reason: dict[str, list[str]] = {}
    for action in plan.deletes:
        if action.kind == "Pod":
            by_reason.setdefault(action.why, []).append(action.name)
    notes += [Note("PodsDeleted", f"deleted {_some(names)}: {why}") for why, names in by_reason.items()]
    return notes


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


class Recorder:
    """Posts events about runs.

    Args:
        api: the cluster.
        clock: seconds since the epoch.
    """

    def __init__(self, api: Api, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._said: OrderedDict[tuple[str, str, str], float] = OrderedDict()

    async def record(self, run: Run, plan: Plan) -> None:
        """Post what a plan has to say; a refusal is no reason to fail."""
        for note in notes_of(plan):
            key = (run.uid, note.reason, note.message)
            now = self._clock()
            if now - self._said.get(key, float("-inf")) < _AGAIN_SECONDS:
                continue
            self._said[key] = now
            self._said.move_to_end(key)
            while len(self._said) > _REMEMBERED:
                self._said.popitem(last=False)
            try:
                await self._api.create(_event(run, note, now))
            except ApiError as error:
                logger.debug("no event %s for %s/%s: %s", note.reason, run.namespace, run.name, error)


def _event(run: Run, note: Note, now: float) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{run.name}.", "namespace": run.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": run.name,
            "namespace": run.namespace,
            "uid": run.uid,
            "resourceVersion": run.resource_version,
        },
        "reason": note.reason,
        "message": note.message[:1024],
        "type": note.kind,
        "source": {"component": "webgym-operator"},
        "firstTimestamp": time_text(now),
        "lastTimestamp": time_text(now),
        "count": 1,
    }
