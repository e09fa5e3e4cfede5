"""The operator's decision, on a cluster in memory: from apply to training, what comes back, and whose run it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from operator_cluster import Cluster, running, workers
from operator_runs import SETTINGS, make_run

from webgym.run.snapshot import Member
from webgym_operator.figures import sandbox_obstacle
from webgym_operator.observed import STUCK_AFTER, Figures, Life

# --- from apply to training -------------------------------------------------------------------------------------------


def test_a_run_comes_up_and_then_nothing_is_written_any_more() -> None:
    cluster = running(workers(3))
    assert cluster.names("worker") == [f"demo-worker-{i}-0" for i in range(3)]
    assert cluster.names("learner") == ["demo-learner-0-0"]
    assert cluster.condition("Ready") == ("True", "Running")
    assert cluster.condition("Progressing") == ("False", "Stable")
    before = cluster.writes
    for _ in range(5):
        cluster.now += 30
        assert cluster.reconcile().actions == []
    assert cluster.writes == before


def test_pods_wait_for_redis() -> None:
    cluster = Cluster()
    cluster.reconcile()
    assert "StatefulSet" in cluster.kinds()
    cluster.reconcile()
    assert "Pod" not in cluster.kinds()
    assert cluster.condition("Ready") == ("False", "RedisNotReady")


def test_an_outside_redis_is_not_waited_for() -> None:
    cluster = Cluster({"redis": {"url": "redis://redis.example.com"}})
    cluster.reconcile()
    assert len(cluster.pods("worker")) == 1
    assert "StatefulSet" not in cluster.kinds()


def test_while_programs_come_up_the_run_progresses() -> None:
    cluster = Cluster()
    for _ in range(6):
        cluster.reconcile()
        assert cluster.condition("Progressing")[0] == "True"
        if "Pod" in cluster.kinds():
            break
        cluster.kubelet()
    # Made and not ready yet, with nothing left to do about it.
    assert not cluster.reconcile().actions
    assert cluster.condition("Progressing") == ("True", "Starting")
    assert cluster.message("Progressing") == "0 of 1 learners are ready"
    assert cluster.condition("Succeeded") == ("Unknown", "Starting")


def test_what_keeps_a_run_from_starting_is_said_first_and_once_by_an_event() -> None:
    cluster = Cluster(schedulable=False)
    cluster.settle()
    assert cluster.condition("Succeeded") == ("Unknown", "Unschedulable")
    assert cluster.message("Succeeded") == cluster.message("Progressing")
    assert [note for note in cluster.notes if note.startswith("Unschedulable: ")] == [
        "Unschedulable: learner-0: Unschedulable: 0/1"
    ]
    before = cluster.writes
    assert not cluster.reconcile().notes
    assert cluster.writes == before


def test_different_obstacles_are_all_named() -> None:
    cluster = Cluster(workers(2), schedulable=False)
    cluster.settle()
    for name in ("demo-worker-0-0", "demo-worker-1-0"):
        waiting = {"reason": "ImagePullBackOff", "message": f"no image of {name}"}
        cluster.objects["Pod", name]["status"] = {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{"state": {"waiting": waiting}}],
        }
    cluster.reconcile()
    assert cluster.condition("Progressing") == ("False", "Unschedulable")
    assert cluster.message("Progressing") == (
        "learner-0: Unschedulable: 0/1; worker-0: ImagePullBackOff: no image of demo-worker-0-0"
    )


@pytest.mark.parametrize(
    ("storage", "of"),
    [
        ({"storageClassName": "fast"}, "storage class fast"),
        (
            {},
            "no storage class (spec.storage.storageClassName names none, and the cluster has no default)",
        ),
    ],
)
def test_of_volumes_that_are_not_bound_the_storage_class_is_named(storage: dict[str, str], of: str) -> None:
    cluster = Cluster({"storage": storage}, schedulable=False)
    cluster.settle()
    claims = [name for kind, name in cluster.objects if kind == "PersistentVolumeClaim"]
    (volume,) = [name for name in claims if name != "demo-redis"]
    for name in claims:
        cluster.objects["PersistentVolumeClaim", name]["status"] = {"phase": "Pending"}
    (pod,) = [made for (kind, name), made in cluster.objects.items() if kind == "Pod" and "learner" in name]
    pod["status"]["conditions"][0]["message"] = "pod has unbound immediate PersistentVolumeClaims"
    cluster.reconcile()
    assert cluster.message("Progressing") == (
        "learner-0: Unschedulable: pod has unbound immediate PersistentVolumeClaims"
        f" ({volume} of {of} is not bound, kubectl describe pvc {volume} tells why)"
    )
    for name in claims:
        cluster.objects["PersistentVolumeClaim", name]["status"] = {"phase": "Bound"}
    cluster.reconcile()
    assert cluster.message("Progressing") == (
        "learner-0: Unschedulable: pod has unbound immediate PersistentVolumeClaims"
    )


def test_a_redis_of_the_users_that_does_not_answer_is_in_the_way() -> None:
    cluster = Cluster({"redis": {"url": "redis://redis.example.com"}})
    cluster.figures_error = (
        "Redis at redis://redis.example.com cannot be reached (refused); does the URL fit?"
    )
    cluster.settle()
    assert cluster.condition("Succeeded") == ("Unknown", "RedisUnreachable")
    assert cluster.message("Succeeded") == cluster.figures_error
    assert cluster.condition("Progressing") == ("False", "RedisUnreachable")
    # There is no URL to change where the run has a Redis of its own.
    cluster = running()
    cluster.figures, cluster.figures_error = (
        None,
        "Redis at redis://10.0.0.1 cannot be reached (refused); check redis.url",
    )
    cluster.reconcile()
    assert cluster.message("Ready") == "Redis at redis://10.0.0.1 cannot be reached (refused)"


def test_the_status_says_what_autoscalers_and_people_ask() -> None:
    cluster = running(workers(2))
    cluster.say("train", steps=500, success=0.25, steps_per_second=80.5, staleness=3.2, time_left=40.2)
    cluster.reconcile()
    status = cluster.body["status"]
    assert (status["replicas"], status["readyReplicas"], status["desiredReplicas"]) == (2, 2, 2)
    assert status["selector"] == "webgym.io/role=worker,webgym.io/run=demo"
    assert (status["steps"], status["success"], status["timeLeftSeconds"]) == (500, 0.25, 40)
    assert cluster.condition("Succeeded") == ("Unknown", "Training")
    # Of a run that is over, no time is left.
    cluster.say("done", steps=600, time_left=3.0)
    cluster.end("demo-learner-0-0", 0)
    cluster.settle()
    status = cluster.body["status"]
    assert (status["steps"], status.get("timeLeftSeconds")) == (600, None)


@pytest.mark.parametrize("persistent", [True, False])
def test_where_the_data_of_a_redis_lie_stays_as_it_was_made(persistent: bool) -> None:
    cluster = Cluster()
    cluster.settings = replace(SETTINGS, redis_persistent=persistent)
    cluster.settle()
    before = cluster.objects["StatefulSet", "demo-redis"]["spec"]
    cluster.settings = replace(SETTINGS, redis_persistent=not persistent)
    assert not cluster.reconcile().actions
    assert cluster.objects["StatefulSet", "demo-redis"]["spec"] == before
    # What is made anew follows the settings.
    fresh = Cluster()
    fresh.settings = cluster.settings
    fresh.settle()
    assert ("PersistentVolumeClaim", "demo-redis") in (cluster if persistent else fresh).objects
    assert ("PersistentVolumeClaim", "demo-redis") not in (fresh if persistent else cluster).objects


def test_figures_stay_while_redis_is_silent() -> None:
    cluster = running()
    cluster.say("train", steps=500)
    cluster.reconcile()
    cluster.figures, cluster.figures_error = None, "Redis at redis://demo-redis:6379 refuses connections"
    cluster.reconcile()
    assert cluster.body["status"]["steps"] == 500
    assert cluster.condition("Ready") == ("False", "RedisUnreachable")
    assert cluster.condition("Succeeded") == ("Unknown", "Training")


def test_the_status_says_what_workers_tell_of_the_sandbox_and_keeps_it() -> None:
    cluster = running()
    assert cluster.condition("BrowserSandbox") == ("Unknown", "NotReported")
    cluster.figures = Figures(sandbox_obstacle="worker-0.0: user namespaces are forbidden")
    cluster.reconcile()
    assert cluster.condition("BrowserSandbox") == ("False", "Unavailable")
    cluster.figures = Figures(sandbox_obstacle="")
    cluster.reconcile()
    cluster.figures = Figures()
    cluster.reconcile()
    assert cluster.condition("BrowserSandbox") == ("True", "Sandboxed")


def test_no_condition_is_without_a_message() -> None:
    cluster = Cluster()
    for _ in range(4):
        cluster.reconcile()
        assert all(one["message"] for one in cluster.body["status"]["conditions"])


def test_one_browser_without_its_sandbox_is_enough_to_say_so() -> None:
    told = [Member("learner-0"), Member("worker-0.0", sandbox_obstacle="")]
    assert sandbox_obstacle(told[:1]) is None
    assert sandbox_obstacle(told) == ""
    why = sandbox_obstacle([*told, Member("worker-1.0", sandbox_obstacle="running as root")])
    assert why == "worker-1.0: running as root"


# --- what comes back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Service", "demo-redis"),
        ("Service", "demo-learner"),
        ("Secret", "demo-redis"),
        ("StatefulSet", "demo-redis"),
        ("NetworkPolicy", "demo-worker"),
        ("PodDisruptionBudget", "demo-worker"),
    ],
)
def test_an_object_that_somebody_deleted_comes_back_and_nothing_else_changes(kind: str, name: str) -> None:
    cluster = running(workers(2))
    pods = cluster.names("worker") + cluster.names("learner")
    del cluster.objects[kind, name]
    cluster.settle()
    assert (kind, name) in cluster.objects
    assert cluster.names("worker") + cluster.names("learner") == pods


def test_a_secret_that_nobody_remembers_replaces_all_pods() -> None:
    cluster = running(workers(1))
    cluster.passwords = type(cluster.passwords).generate()
    del cluster.objects["Secret", "demo-redis"]
    cluster.settle()
    assert cluster.names("worker") == ["demo-worker-0-0"]  # the name is free again
    templates = {pod.template for pod in cluster.pods("worker")}
    cluster.settle()
    assert {pod.template for pod in cluster.pods("worker")} == templates
    assert cluster.condition("Ready") == ("True", "Running")


def test_a_worker_that_somebody_deleted_is_replaced_once_it_is_gone() -> None:
    cluster = running(workers(2))
    cluster.remove("Pod", "demo-worker-1-0")
    cluster.reconcile()
    assert cluster.names("worker") == ["demo-worker-0-0", "demo-worker-1-0"]
    cluster.kubelet()
    cluster.settle()
    assert len(cluster.pods("worker")) == 2
    assert cluster.body["status"]["restarts"] == 0


def test_a_pod_stuck_on_a_lost_node_blocks_nothing() -> None:
    cluster = running(workers(2))
    for name in ("demo-worker-1-0", "demo-learner-0-0"):
        cluster.remove("Pod", name)
    cluster.now += 20 + STUCK_AFTER - 1
    assert cluster.plan().creates == []
    assert cluster.plan().wake_at == pytest.approx(cluster.now + 1, abs=1)
    cluster.now += 2
    made = [create.body["metadata"]["name"] for create in cluster.reconcile().creates]
    assert "demo-learner-0-1" in made
    assert len(made) == 2
    assert sum(pod.life(cluster.now) is Life.LIVE for pod in cluster.pods("worker")) == 2
    assert cluster.plan().creates == []


def test_a_learner_found_stuck_takes_its_group_with_it() -> None:
    """Nobody looked while it was leaving; its name stays taken, and so the whole group gets other ones."""
    cluster = running({"learner": {"replicas": 2}})
    cluster.remove("Pod", "demo-learner-0-0")
    cluster.now += 20 + STUCK_AFTER + 1
    plan = cluster.reconcile()
    assert [d.name for d in plan.deletes] == ["demo-learner-1-0"]
    assert plan.creates == []
    del cluster.objects["Pod", "demo-learner-1-0"]
    made = [create.body["metadata"]["name"] for create in cluster.reconcile().creates]
    assert made == ["demo-learner-0-1", "demo-learner-1-1"]


# --- whose run it is --------------------------------------------------------------------------------------------------


def test_a_run_of_another_manager_and_a_run_that_goes_are_left_alone() -> None:
    other = Cluster({"managedBy": "kueue.x-k8s.io/multikueue"})
    assert (other.plan().actions, other.plan().status) == ([], None)
    going = running()
    going.body["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    assert (going.plan().actions, going.plan().status) == ([], None)


def test_an_invalid_spec_is_said_once_and_harms_nothing_that_runs() -> None:
    cluster = running(workers(2))
    cluster.change(workers={"autoscaling": {"min": 9, "max": 3}})
    cluster.reconcile()
    assert cluster.condition("Succeeded") == ("False", "InvalidSpec")
    assert "min may not exceed max" in cluster.message("Succeeded")
    assert len(cluster.pods("worker")) == 2
    before, notes = cluster.writes, len(cluster.notes)
    cluster.reconcile()
    assert (cluster.writes, len(cluster.notes)) == (before, notes)
    cluster.change(workers={"autoscaling": {"min": 1}})
    cluster.settle()
    assert cluster.condition("Succeeded")[0] == "Unknown"


def test_the_seed_of_a_run_cannot_change() -> None:
    cluster = running({"seed": 1})
    cluster.change(seed=2)
    cluster.reconcile()
    assert cluster.condition("Succeeded") == ("False", "InvalidSpec")
    assert "seed" in cluster.message("Succeeded")


def test_a_run_waits_for_what_an_earlier_one_of_its_name_leaves() -> None:
    cluster = running()
    cluster.body["metadata"]["uid"] = "another"
    cluster.body.pop("status")
    plan = cluster.reconcile()
    assert plan.actions == []
    assert cluster.condition("Progressing") == ("True", "WaitingForEarlierRun")
    assert plan.wake_at is not None
    cluster.objects = {k: o for k, o in cluster.objects.items() if not o["metadata"]["ownerReferences"]}
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Running")
    claims = [n for k, n in cluster.objects if k == "PersistentVolumeClaim" and n != "demo-redis"]
    assert len(claims) == 2  # the old checkpoints, and a volume of its own


def test_retaining_checkpoints_can_be_decided_later() -> None:
    cluster = running()
    claim = ("PersistentVolumeClaim", make_run().claim_name)
    assert cluster.objects[claim]["metadata"]["ownerReferences"] == []
    cluster.change(storage={"retain": False})
    cluster.settle()
    assert len(cluster.objects[claim]["metadata"]["ownerReferences"]) == 1
    cluster.change(storage={"retain": True})
    cluster.settle()
    assert cluster.objects[claim]["metadata"]["ownerReferences"] == []
