"""Pods that fail: what is counted, what is named, what is made anew, and when a run is given up."""

from __future__ import annotations

import pytest
from operator_cluster import running, workers


def test_a_killed_worker_is_counted_once_and_replaced_after_a_pause() -> None:
    cluster = running(workers(2))
    cluster.end("demo-worker-0-0", 1, message="no browser starts")
    for _ in range(3):
        cluster.reconcile()
    assert cluster.body["status"]["restarts"] == 1
    assert cluster.body["status"]["failures"] == {"browser": 1}
    assert cluster.names("worker") == ["demo-worker-0-0", "demo-worker-1-0"]
    cluster.now = cluster.plan().wake_at or 0
    cluster.settle()
    assert cluster.names("worker") == ["demo-worker-0-1", "demo-worker-1-0"]
    assert cluster.body["status"]["restarts"] == 1
    assert "countedPods" not in cluster.body["status"]


def test_an_end_is_counted_before_the_pod_is_removed() -> None:
    cluster = running()
    cluster.end("demo-worker-0-0", 1)
    cluster.now += 1000
    assert cluster.plan().deletes == []  # the status does not name it yet
    cluster.reconcile()
    assert [d.name for d in cluster.plan().deletes] == ["demo-worker-0-0"]


@pytest.mark.parametrize("reason", ["Evicted", "NodeShutdown", "Preempting"])
def test_what_a_node_does_is_not_counted(reason: str) -> None:
    cluster = running()
    cluster.end("demo-worker-0-0", 137, pod_reason=reason)
    cluster.reconcile()
    cluster.now += 2
    cluster.settle()
    assert cluster.body["status"]["restarts"] == 0
    assert cluster.names("worker") == ["demo-worker-0-1"]


def test_a_learner_killed_for_memory_is_named_as_such() -> None:
    cluster = running()
    cluster.end("demo-learner-0-0", 137, "OOMKilled")
    cluster.reconcile()
    assert "exit code 137, OOMKilled" in cluster.body["status"]["lastFailure"]
    assert "learner.resources.limits.memory" in cluster.message("Progressing")
    assert any(note.startswith("OutOfMemory") for note in cluster.notes)


def test_a_full_volume_is_named_as_such() -> None:
    cluster = running()
    cluster.end("demo-learner-0-0", 1, message="cannot write step-5: No space left on device")
    cluster.reconcile()
    assert "storage.size" in cluster.body["status"]["lastFailure"]


def test_too_many_failures_end_the_run_and_release_its_pods() -> None:
    cluster = running(workers(2, backoffLimit=2))
    for incarnation in range(3):
        cluster.end(f"demo-worker-0-{incarnation}", 1, message="boom")
        cluster.reconcile()
        cluster.now += 400
        cluster.settle()
    assert cluster.condition("Succeeded") == ("False", "BackoffLimitExceeded")
    assert "boom" in cluster.message("Succeeded")
    cluster.settle()
    assert cluster.names("worker") == ["demo-worker-0-2"]  # for its log
    assert "StatefulSet" not in cluster.kinds()


@pytest.mark.parametrize(("code", "reason"), [(2, "InvalidConfiguration"), (4, "Diverged")])
def test_what_trying_again_cannot_mend_ends_the_run_at_once(code: int, reason: str) -> None:
    cluster = running()
    cluster.end("demo-learner-0-0", code, message="spec.task.name: no task of that name")
    cluster.reconcile()
    assert cluster.condition("Succeeded") == ("False", reason)
    assert "no task of that name" in cluster.message("Succeeded")


def test_redis_down_is_said_counted_against_nobody_and_mends_by_itself() -> None:
    cluster = running(workers(2, backoffLimit=0))
    cluster.objects["StatefulSet", "demo-redis"]["status"] = {}
    cluster.end("demo-learner-0-0", 3, message="Redis is gone")
    cluster.reconcile()
    assert cluster.condition("Ready") == ("False", "RedisNotReady")
    assert cluster.condition("Succeeded")[0] == "Unknown"
    cluster.now += 100
    cluster.reconcile()
    assert cluster.names("learner") == []  # nothing starts without Redis
    assert len(cluster.pods("worker")) == 2  # and nothing is taken away
    cluster.kubelet()
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Running")


def test_a_learner_that_was_only_asked_to_leave_comes_again() -> None:
    cluster = running()
    cluster.say("train")
    cluster.end("demo-learner-0-0", 0)
    cluster.reconcile()
    cluster.now += 60
    cluster.settle()
    assert cluster.names("learner") == ["demo-learner-0-1"]
    assert cluster.condition("Succeeded") == ("Unknown", "Training")
