"""Runs that are suspended: what is released, what is kept, and what does not count meanwhile."""

from __future__ import annotations

from operator_cluster import running, workers


def test_suspension_releases_all_pods_redis_last_and_resumes() -> None:
    cluster = running(workers(2))
    cluster.change(suspend=True)
    cluster.reconcile()
    assert cluster.objects["StatefulSet", "demo-redis"]["spec"]["replicas"] == 1
    assert cluster.condition("Suspended") == ("False", "Suspending")
    cluster.kubelet()
    cluster.settle()
    assert cluster.objects["StatefulSet", "demo-redis"]["spec"]["replicas"] == 0
    assert "Pod" not in cluster.kinds()
    assert cluster.condition("Suspended") == ("True", "Suspended")
    cluster.now += 61
    cluster.settle()  # a manifest that nobody reads any more goes
    before = cluster.writes
    cluster.now += 5000
    cluster.settle()
    assert cluster.writes == before
    cluster.change(suspend=False)
    cluster.settle()
    assert len(cluster.pods("worker")) == 2
    assert cluster.condition("Suspended") == ("False", "Active")


def test_a_run_created_suspended_makes_nothing() -> None:
    cluster = running({"suspend": True})
    assert cluster.objects == {}
    assert cluster.condition("Suspended") == ("True", "Suspended")
    assert "startTime" not in cluster.body["status"]


def test_suspension_does_not_count_against_the_deadline() -> None:
    cluster = running({"activeDeadlineSeconds": 600, "stop": {"seconds": 500}})
    cluster.now += 300
    cluster.change(suspend=True)
    cluster.settle()
    cluster.now += 10_000
    cluster.change(suspend=False)
    cluster.settle()
    cluster.now += 250
    cluster.settle()
    assert cluster.condition("Succeeded")[0] == "Unknown"
    cluster.now += 100
    cluster.settle()
    assert cluster.condition("Succeeded") == ("False", "DeadlineExceeded")
