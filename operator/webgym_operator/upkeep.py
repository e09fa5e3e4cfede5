"""All of a run but its pods: made where it is missing, mended where it differs, removed where nobody asks for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from webgym_operator.observed import PodView
from webgym_operator.plan import Action, Create, Delete, Patch
from webgym_operator.resources import APPLIED
from webgym_operator.run import Object, seconds_of

__all__ = ["keep_up", "remove", "remove_all_but"]


def keep_up(
    wanted: Sequence[Object],
    seen: Mapping[tuple[str, str], Object],
    programs: Sequence[PodView],
    *,
    now: float,
    create: bool,
) -> list[Action]:
    """Actions that make what is seen what is wanted.

    Args:
        wanted: objects as they should be, each with its hash.
        seen: objects of the run that are there, by kind and name.
        programs: pods, whose manifests are kept as long as they are there.
        now: seconds since the epoch.
        create: whether what is missing is made.
    """
    actions: list[Action] = []
    keys = set()
    for one in wanted:
        key = (one["kind"], one["metadata"]["name"])
        keys.add(key)
        if key not in seen:
            if create:
                actions.append(Create(one))
        elif _applied(seen[key]) != _applied(one):
            actions.append(Patch(*key, _patch_of(one)))
    in_use = {pod.config for pod in programs}
    for (kind, name), made in sorted(seen.items()):
        stale = kind == "ConfigMap" and name not in in_use and not _is_young(made, now)
        unwanted = kind not in ("ConfigMap", "PersistentVolumeClaim") and (kind, name) not in keys
        if stale or unwanted:
            actions += remove(kind, name, made, "no longer asked for")
    return actions


def remove_all_but(kept: Collection[str], seen: Mapping[tuple[str, str], Object], why: str) -> list[Action]:
    """Actions that remove everything but objects of some names."""
    return [
        action
        for (kind, name), made in sorted(seen.items())
        if name not in kept
        for action in remove(kind, name, made, why)
    ]


def remove(kind: str, name: str, made: Object, why: str) -> list[Action]:
    """The removal of an object, unless it is under way."""
    if made["metadata"].get("deletionTimestamp"):
        return []
    return [Delete(kind, name, made["metadata"].get("uid", ""), None, why)]


def _applied(made: Object) -> str | None:
    annotations = made["metadata"].get("annotations") or {}
    value = annotations.get(APPLIED)
    return value if isinstance(value, str) else None


def _patch_of(made: Object) -> Object:
    """What of an object can be merged into one that exists: all but its identity, and what no server lets change."""
    patch = {key: value for key, value in made.items() if key not in ("apiVersion", "kind")}
    patch["metadata"] = {
        key: value
        for key, value in made["metadata"].items()
        if key in ("labels", "annotations", "ownerReferences")
    }
    if made["kind"] == "PersistentVolumeClaim":
        patch["spec"] = {"resources": made["spec"]["resources"]}
    elif made["kind"] == "StatefulSet":
        patch["spec"] = {key: made["spec"][key] for key in ("replicas", "template")}
    return patch


def _is_young(made: Object, now: float) -> bool:
    """A manifest may be there a moment before the pods that read it."""
    created = seconds_of(made["metadata"].get("creationTimestamp"))
    return created is None or now - created < 60
