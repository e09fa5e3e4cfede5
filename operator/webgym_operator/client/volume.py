"""The folder of a run on its volume: read through the learner while it lives, through a pod of our own after it."""

from __future__ import annotations

import contextlib
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType

from webgym.errors import RunError, UsageError
from webgym_operator.client.access import Cluster
from webgym_operator.client.pods import pod_objects
from webgym_operator.client.refusal import ClusterError
from webgym_operator.observed import Life, parse_pod
from webgym_operator.podspec import CONTAINER_SECURITY, DATA_FOLDER, pod_security
from webgym_operator.run import Object, Run

__all__ = ["Door", "door_to", "reader_pod"]

_LIVE_SECONDS = 3600
"""A reader that nobody could remove ends by itself after this time."""
_HOPELESS = ("ErrImageNeverPull", "InvalidImageName")
_REMOVE_TRIES = 3


class Door:
    """A container in which the run's folder can be read.

    Args:
        pod: its name.
        container: which of its containers.
        folder: path of the run's folder in it.
        live: whether a learner may be writing there.
    """

    def __init__(self, pod: str, container: str, folder: str, live: bool) -> None:
        self.pod = pod
        self.container = container
        self.folder = folder
        self.live = live


@contextlib.contextmanager
def door_to(
    cluster: Cluster, run: Run, *, image: str | None, seconds: float, tell: Callable[[str], None]
) -> Iterator[Door]:
    """A way to the run's folder, for as long as the block lasts.

    Args:
        cluster: where the run is.
        run: with a valid spec.
        image: for a pod of our own; None for that of the run's learner.
        seconds: how long such a pod may take to start.
        tell: is given what is waited for.

    Raises:
        RunError: there is no volume, or its pod does not start.
        UsageError: no image is known.
        ClusterError: refused, or not reached.
    """
    pods = pod_objects(cluster, run.name)
    folder = f"{DATA_FOLDER}/{run.folder_name}"
    now = time.time()
    for body in pods:
        pod = parse_pod(body)
        # Only rank 0 has the volume.
        if (pod.role, pod.slot) == ("learner", 0) and pod.ready and pod.life(now) is Life.LIVE:
            yield Door(pod.name, "learner", folder, live=True)
            return
    _require_claim(cluster, run)
    learner = next((body for body in pods if parse_pod(body).role == "learner"), None)
    made = reader_pod(run, learner, image or _image(cluster, run, learner))
    with _interruptible(), _removed_afterwards(cluster, made, tell) as name:
        _wait_running(cluster, name, seconds, tell)
        yield Door(name, "reader", folder, live=False)


def reader_pod(run: Run, learner: Object | None, image: str) -> Object:
    """A pod that holds the run's volume, read-only, and does nothing.

    The operator does not see it, for it carries none of the labels of a run's pods; it goes with the run.

    Args:
        run: with a valid spec.
        learner: a pod of its learner, whose way of pulling images is taken over.
        image: with GNU tar, such as the learner's.
    """
    spec = (learner or {}).get("spec") or {}
    container: Object = next(iter(spec.get("containers") or ()), {})
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{run.name}-fetch-{secrets.token_hex(3)}",
            "namespace": run.namespace,
            "labels": {"app.kubernetes.io/name": "webgym", "app.kubernetes.io/component": "fetch"},
            "ownerReferences": [{**run.owner(), "controller": False}],
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _LIVE_SECONDS,
            "terminationGracePeriodSeconds": 1,
            "securityContext": pod_security({"type": "RuntimeDefault"}),
            "containers": [
                {
                    "name": "reader",
                    "image": image,
                    "imagePullPolicy": container.get("imagePullPolicy", "IfNotPresent"),
                    "command": ["sleep", str(_LIVE_SECONDS)],
                    "securityContext": CONTAINER_SECURITY,
                    "resources": {
                        "requests": {"cpu": "50m", "memory": "64Mi"},
                        "limits": {"cpu": "500m", "memory": "256Mi"},
                    },
                    "volumeMounts": [{"name": "data", "mountPath": DATA_FOLDER, "readOnly": True}],
                }
            ],
            "volumes": [
                {
                    "name": "data",
                    "persistentVolumeClaim": {"claimName": run.claim_name, "readOnly": True},
                }
            ],
            # The volume may hang on a node that only learners are let onto.
            "tolerations": [
                t.model_dump(mode="json", by_alias=True, exclude_none=True)
                for t in run.spec.learner.tolerations
            ],
        },
    }
    if spec.get("imagePullSecrets"):
        pod["spec"]["imagePullSecrets"] = spec["imagePullSecrets"]
    return pod


def _require_claim(cluster: Cluster, run: Run) -> None:
    try:
        cluster.get("PersistentVolumeClaim", run.claim_name)
    except ClusterError as error:
        if error.status != 404:
            raise
        raise RunError(
            f"run {run.name} has no volume {run.claim_name}: it has not begun yet, or somebody deleted it"
        ) from None


def _image(cluster: Cluster, run: Run, learner: Object | None) -> str:
    """The learner's, from its pod, the run, or the operator's settings."""
    if learner is not None:
        return str(learner["spec"]["containers"][0]["image"])
    if run.spec.learner.image is not None:
        return run.spec.learner.image
    from webgym_operator.client.installation import installation

    found = installation(cluster)
    if found.settings is None:
        raise UsageError(
            f"the image of the learner of run {run.name} is not known ({found.trouble or 'its pods are gone'}): name "
            "one with tar by --image"
        )
    return found.settings.learner_image


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, so that what was made is removed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread, where signals are somebody else's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _removed_afterwards(cluster: Cluster, pod: Object, tell: Callable[[str], None]) -> Iterator[str]:
    name = str(pod["metadata"]["name"])
    uid = ""
    try:
        tell(f"starting pod {name}, which reads the volume")
        # From here on it may exist, even if the answer never comes.
        uid = cluster.create(pod)["metadata"]["uid"]
        yield name
    finally:
        with _deaf():
            _remove(cluster, name, uid)


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """A second Ctrl-C does not leave the pod behind."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _remove(cluster: Cluster, name: str, uid: str) -> None:
    for left in reversed(range(_REMOVE_TRIES)):
        try:
            if not uid:
                uid = cluster.get("Pod", name)["metadata"]["uid"]
            cluster.delete("Pod", name, uid=uid, grace_seconds=1)
            return
        except ClusterError as error:
            if error.status == 404:
                return
            if not left or (error.status not in (0, 429) and error.status < 500):
                sys.stderr.write(
                    f"webgym: pod {name} could not be removed ({error}); it ends by itself within an hour: "
                    f"kubectl delete pod {name} -n {cluster.namespace}\n"
                )
                return


def _wait_running(cluster: Cluster, name: str, seconds: float, tell: Callable[[str], None]) -> None:
    deadline = time.monotonic() + seconds
    while True:
        body = cluster.get("Pod", name)
        pod = parse_pod(body)
        if pod.phase == "Running" and pod.ready:
            return
        if pod.phase in ("Succeeded", "Failed"):
            why = pod.end.message if pod.end and pod.end.message else pod.phase
            raise RunError(f"pod {name}, which was to read the volume, ended at once: {why}")
        if pod.obstacle:
            tell(f"pod {name}: {pod.obstacle}")
            if pod.obstacle.startswith(_HOPELESS):
                raise RunError(f"pod {name}, which was to read the volume, cannot start: {pod.obstacle}")
        left = deadline - time.monotonic()
        if left <= 0:
            why = pod.obstacle or f"it is {pod.phase}"
            raise RunError(
                f"pod {name}, which was to read the volume, did not start in {seconds:.0f} s: {why}"
            )
        version = str(body["metadata"]["resourceVersion"])
        selector = "app.kubernetes.io/component=fetch"
        try:
            for _, changed in cluster.watch("Pod", version, selector=selector, seconds=min(left, 30.0)):
                if changed["metadata"]["name"] == name:
                    break
        except ClusterError as error:
            if error.status != 410:
                raise
