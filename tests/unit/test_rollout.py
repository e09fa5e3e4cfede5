"""The operator scales a run and rolls changes of its spec out: which pods go, which come, and how many at a time."""

from __future__ import annotations

from operator_cluster import Cluster, running, workers

from webgym_operator.pods import DRAIN_SECONDS

# --- scaling ----------------------------------------------------------------------------------------------------------


def test_an_unschedulable_pool_does_not_grow_past_what_was_asked() -> None:
    cluster = Cluster(workers(4), schedulable=False)
    for _ in range(6):
        cluster.reconcile()
        cluster.kubelet()
        cluster.now += 60
    assert len(cluster.pods("worker")) == 4
    assert cluster.condition("Progressing") == ("False", "Unschedulable")


def test_scaling_down_by_one_touches_one_pod() -> None:
    cluster = running(workers(3))
    cluster.change(workers={"replicas": 2})
    plan = cluster.reconcile()
    assert [d.name for d in plan.deletes if d.kind == "Pod"] == ["demo-worker-2-0"]
    assert [d.grace_seconds for d in plan.deletes if d.kind == "Pod"] == [DRAIN_SECONDS]
    assert plan.creates == []
    cluster.settle()
    assert cluster.names("worker") == ["demo-worker-0-0", "demo-worker-1-0"]


def test_scaling_down_takes_pending_then_idle_then_busy_workers() -> None:
    cluster = running(workers(3))
    cluster.schedulable = False
    cluster.change(workers={"replicas": 4})
    cluster.settle()
    cluster.say("train")
    assert cluster.figures is not None
    cluster.figures = type(cluster.figures)(
        cluster.figures.snapshot, 5, 3, busy={"worker-0": 0, "worker-1": 2, "worker-2": 1}
    )
    order = []
    for count in (3, 2, 1):
        cluster.change(workers={"replicas": count})
        order += [d.name for d in cluster.reconcile().deletes if d.kind == "Pod"]
    assert order == ["demo-worker-3-0", "demo-worker-0-0", "demo-worker-2-0"]


def test_a_drained_worker_holds_its_place_until_it_is_gone() -> None:
    cluster = running(workers(3))
    cluster.change(workers={"replicas": 1})
    cluster.reconcile()
    cluster.change(workers={"replicas": 3})
    assert cluster.plan().creates == []
    cluster.kubelet()
    cluster.settle()
    assert len(cluster.pods("worker")) == 3


# --- changes of the spec ----------------------------------------------------------------------------------------------


def test_another_image_is_rolled_out_a_few_workers_at_a_time() -> None:
    cluster = running(workers(8))
    cluster.change(workers={"image": "worker:2"})
    plan = cluster.reconcile()
    assert len([d for d in plan.deletes if d.kind == "Pod"]) == 2
    assert cluster.condition("Progressing") == ("True", "RollingUpdate")
    cluster.settle(40)
    images = {
        o["spec"]["containers"][0]["image"]
        for (k, n), o in cluster.objects.items()
        if k == "Pod" and "worker" in n
    }
    assert images == {"worker:2"}
    assert len(cluster.pods("worker")) == 8
    assert cluster.names("learner") == ["demo-learner-0-0"]


def test_workers_that_do_not_start_are_replaced_at_once_by_a_better_spec() -> None:
    cluster = Cluster(workers(4), schedulable=False)
    cluster.settle()
    cluster.change(workers={"resources": {"requests": {"cpu": "1"}}})
    assert len([d for d in cluster.reconcile().deletes if d.kind == "Pod"]) == 4


def test_another_budget_replaces_the_learner_alone_and_never_two_at_a_time() -> None:
    cluster = running(workers(2))
    cluster.change(stop={"seconds": 5000})
    plan = cluster.reconcile()
    assert [d.name for d in plan.deletes if d.kind == "Pod"] == ["demo-learner-0-0"]
    assert plan.creates == []
    cluster.kubelet()
    cluster.settle()
    assert len(cluster.pods("learner")) == 1
    assert cluster.names("worker") == ["demo-worker-0-0", "demo-worker-1-0"]


def test_learners_start_again_together() -> None:
    cluster = running({"learner": {"replicas": 2}})
    assert cluster.names("learner") == ["demo-learner-0-0", "demo-learner-1-0"]
    cluster.end("demo-learner-1-0", 1)
    cluster.reconcile()
    cluster.kubelet()
    cluster.now += 10
    cluster.settle()
    assert cluster.names("learner") == ["demo-learner-0-1", "demo-learner-1-1"]
    assert cluster.body["status"]["restarts"] == 1


def test_an_outside_redis_takes_the_place_of_the_run_s_own() -> None:
    cluster = running()
    cluster.change(redis={"url": "redis://redis.example.com"})
    cluster.settle(20)
    assert not {"StatefulSet", "Secret"} & cluster.kinds()
    assert ("PersistentVolumeClaim", "demo-redis") in cluster.objects  # data is not thrown away by an edit
