"""What was last seen of all children of all runs, own writes included.

Watches lag. A decision taken on what they say alone would make a pod again that it made a moment ago. So whatever the
server answers to a write of ours goes in here at once, and news that is older than what is here is not believed.
"""

from __future__ import annotations

import copy
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from webgym_operator.run import Object

__all__ = ["Cache", "RunKey", "run_key_of", "trimmed"]

RunKey = tuple[str, str]
"""Namespace and name of a run."""
_Key = tuple[str, str, str]


@dataclass
class _Entry:
    body: Object
    run: RunKey
    version: int
    written_at: float
    """When a write of ours was answered with it; before everything for what was only seen."""


def run_key_of(child: Mapping[str, Any]) -> RunKey | None:
    """The run that an object was made for, by its labels."""
    metadata = child["metadata"]
    name = (metadata.get("labels") or {}).get("webgym.io/run")
    return (metadata["namespace"], name) if name else None


class Cache:
    """Objects by kind, namespace and name.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[_Key, _Entry] = {}
        self._by_run: defaultdict[RunKey, set[_Key]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._entries)

    def children(self, run: RunKey) -> list[Object]:
        """The objects of a run; to be read only."""
        return [self._entries[key].body for key in sorted(self._by_run.get(run, ()))]

    def version(self, run: RunKey) -> tuple[tuple[_Key, int], ...]:
        """Equal as long as no object of the run changes."""
        return tuple((key, self._entries[key].version) for key in sorted(self._by_run.get(run, ())))

    def see(self, body: Mapping[str, Any]) -> bool:
        """News of a watch or list; whether it was news."""
        return self._put(body, float("-inf"))

    def wrote(self, body: Mapping[str, Any]) -> None:
        """The answer to a write of ours."""
        self._put(body, self._clock())

    def gone(self, kind: str, namespace: str, name: str, uid: str = "") -> bool:
        """An object, or with a uid that very one, is no more; whether that was news."""
        key = (kind, namespace, name)
        entry = self._entries.get(key)
        if entry is None or (uid and entry.body["metadata"].get("uid") != uid):
            return False
        self._remove(key)
        return True

    def replace(
        self, kind: str, namespace: str | None, items: Iterable[Mapping[str, Any]], began: float
    ) -> set[RunKey]:
        """A whole list of a kind, in one namespace or in all; returns the runs that it had news of.

        Args:
            kind: of the objects.
            namespace: where they are; None: everywhere.
            items: the list.
            began: when it was asked for, by the clock of this cache. What we wrote later may be missing in it.
        """
        changed: set[RunKey] = set()
        listed: set[_Key] = set()
        for body in items:
            run = run_key_of(body)
            listed.add((kind, body["metadata"]["namespace"], body["metadata"]["name"]))
            if run is not None and self.see({"kind": kind, **body}):
                changed.add(run)
        for key, entry in list(self._entries.items()):
            in_scope = key[0] == kind and namespace in (None, key[1])
            if in_scope and key not in listed and entry.written_at < began:
                changed.add(entry.run)
                self._remove(key)
        return changed

    def _put(self, body: Mapping[str, Any], written_at: float) -> bool:
        run = run_key_of(body)
        if run is None:
            return False
        metadata = body["metadata"]
        key = (body["kind"], metadata["namespace"], metadata["name"])
        version = _version(metadata)
        before = self._entries.get(key)
        if before is not None:
            if version < before.version:
                return False
            if version == before.version:
                before.written_at = max(before.written_at, written_at)
                return False
            written_at = max(written_at, before.written_at)
            self._by_run[before.run].discard(key)
        self._entries[key] = _Entry(trimmed(body), run, version, written_at)
        self._by_run[run].add(key)
        return True

    def _remove(self, key: _Key) -> None:
        entry = self._entries.pop(key)
        self._by_run[entry.run].discard(key)
        if not self._by_run[entry.run]:
            del self._by_run[entry.run]


def _version(metadata: Mapping[str, Any]) -> int:
    """Versions of one kind's objects grow with time; that they are numbers is so on every real server."""
    text = str(metadata.get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0


def trimmed(body: Mapping[str, Any]) -> Object:
    """Without what no decision needs: thousands of pods are held."""
    kept = {
        key: copy.deepcopy(value) for key, value in body.items() if key not in ("spec", "data", "metadata")
    }
    kept["metadata"] = {k: copy.deepcopy(v) for k, v in body["metadata"].items() if k != "managedFields"}
    spec = body.get("spec") or {}
    if body["kind"] == "Pod":
        configs = [v for v in spec.get("volumes") or () if "configMap" in v]
        kept["spec"] = {"nodeName": spec.get("nodeName"), "volumes": copy.deepcopy(configs)}
    elif body["kind"] == "Service":
        kept["spec"] = {"clusterIP": spec.get("clusterIP")}
    elif body["kind"] == "PersistentVolumeClaim":
        kept["spec"] = {"storageClassName": spec.get("storageClassName")}
    if body["kind"] == "Secret":
        kept["data"] = dict(body.get("data") or {})
    return kept
