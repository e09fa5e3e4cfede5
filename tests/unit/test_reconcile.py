"""The operator's decision, on a cluster in memory: each thing that clusters do to a run, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from operator_cluster import START, Cluster
from operator_runs import make_run

from webgym.run.snapshot import Member
from webgym_operator.figures import sandbox_obstacle
from webgym_operator.observed import STUCK_AFTER, Figures, Life
from webgym_operator.plan import DeleteRun
from webgym_operator.pods import DRAIN_SECONDS


def workers(count: int, **more: Any) -> dict[str, Any]:
    return {"workers": {"replicas": count}, **more}


def running(spec: dict[str, Any] | None = None, **more: Any) -> Cluster:
    cluster = Cluster(spec, **more)
    cluster.settle()
    return cluster


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


def test_the_status_says_what_autoscalers_and_people_ask() -> None:
    cluster = running(workers(2))
    cluster.say("train", steps=500, success=0.25, steps_per_second=80.5, staleness=3.2, time_left=40.2)
    cluster.reconcile()
    status = cluster.body["status"]
    assert (status["replicas"], status["readyReplicas"], status["desiredReplicas"]) == (2, 2, 2)
    assert status["selector"] == "webgym.io/role=worker,webgym.io/run=demo"
    assert (status["steps"], status["success"], status["timeLeftSeconds"]) == (500, 0.25, 40)
    assert cluster.condition("Succeeded") == ("Unknown", "Training")


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


# --- failures ---------------------------------------------------------------------------------------------------------


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


# --- the end ----------------------------------------------------------------------------------------------------------


def finished(spec: dict[str, Any] | None = None) -> Cluster:
    cluster = running(spec)
    cluster.say("done", success=0.99, steps=1000)
    cluster.settle()
    assert cluster.condition("Succeeded") == ("Unknown", "Finishing")
    cluster.end("demo-learner-0-0", 0)
    cluster.reconcile()
    return cluster


def test_the_verdict_ends_the_run_and_releases_all_but_results_and_logs() -> None:
    cluster = finished(workers(3))
    assert cluster.condition("Succeeded") == ("True", "Completed")
    assert "0.99" in cluster.message("Succeeded")
    cluster.figures = None
    cluster.settle()
    assert cluster.names("learner") == ["demo-learner-0-0"]
    assert cluster.names("worker") == []
    assert cluster.kinds() == {"Pod", "ConfigMap", "PersistentVolumeClaim"}
    status = dict(cluster.body["status"])
    assert (status["success"], status["steps"]) == (0.99, 1000)
    cluster.now += 1000
    cluster.reconcile()
    assert cluster.body["status"] == status


def test_workers_are_released_while_the_last_files_are_written() -> None:
    cluster = running(workers(3))
    cluster.say("done")
    cluster.settle()
    assert cluster.names("worker") == []
    assert cluster.names("learner") == ["demo-learner-0-0"]


def test_a_finished_run_removes_itself_after_its_time() -> None:
    cluster = finished({"ttlSecondsAfterFinished": 100})
    cluster.settle()
    assert cluster.plan().wake_at == pytest.approx(cluster.now + 100, abs=2)
    cluster.now += 101
    assert cluster.plan().actions == [DeleteRun()]


def test_a_finished_run_does_not_start_again_when_its_spec_changes() -> None:
    cluster = finished()
    cluster.settle()
    cluster.change(stop={"seconds": 5000})
    cluster.settle()
    assert cluster.condition("Succeeded") == ("True", "Completed")
    assert cluster.names("worker") == []


def test_the_deadline_ends_the_run() -> None:
    cluster = running({"activeDeadlineSeconds": 600, "stop": {"seconds": 500}})
    cluster.now = START + 599
    cluster.settle()
    assert cluster.condition("Succeeded")[0] == "Unknown"
    assert cluster.plan().wake_at == pytest.approx(START + 602, abs=3)
    cluster.now = START + 603
    cluster.settle()
    assert cluster.condition("Succeeded") == ("False", "DeadlineExceeded")


# --- suspension -------------------------------------------------------------------------------------------------------


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


# --- whatever happens -------------------------------------------------------------------------------------------------


class AnyCluster(RuleBasedStateMachine):
    """Anything may happen to pods, in any order: there are never more than asked for, and all is well in the end."""

    @initialize(count=st.integers(0, 5), ranks=st.integers(1, 2))
    def begin(self, count: int, ranks: int) -> None:
        self.cluster = Cluster(workers(count, learner={"replicas": ranks}, backoffLimit=1000))
        self.cluster.settle()

    @rule(seconds=st.sampled_from([1, 5, 40, 400]))
    def time_passes(self, seconds: int) -> None:
        self.cluster.now += seconds

    @rule()
    def kubelet(self) -> None:
        self.cluster.kubelet()

    @rule(count=st.integers(0, 5))
    def scale(self, count: int) -> None:
        self.cluster.change(workers={"replicas": count})

    @rule(image=st.sampled_from(["a", "b"]), part=st.sampled_from(["workers", "learner"]))
    def change_image(self, image: str, part: str) -> None:
        self.cluster.change(**{part: {"image": image}})

    @rule(data=st.data(), code=st.sampled_from([0, 1, 3, 5, 137]))
    def pod_ends(self, data: st.DataObject, code: int) -> None:
        names = [n for (k, n), o in self.cluster.objects.items() if k == "Pod" and o.get("status")]
        if names:
            self.cluster.end(data.draw(st.sampled_from(sorted(names))), code)

    @rule(data=st.data())
    def somebody_deletes(self, data: st.DataObject) -> None:
        names = sorted(n for k, n in self.cluster.objects if k == "Pod")
        if names:
            self.cluster.remove("Pod", data.draw(st.sampled_from(names)))

    @rule(suspend=st.booleans())
    def suspend(self, suspend: bool) -> None:
        self.cluster.change(suspend=suspend)

    @rule(schedulable=st.booleans())
    def nodes_come_and_go(self, schedulable: bool) -> None:
        self.cluster.schedulable = schedulable

    @rule()
    def redis_falls(self) -> None:
        for (kind, _), made in self.cluster.objects.items():
            if kind == "StatefulSet":
                made["status"] = {}

    @rule()
    def operator_looks(self) -> None:
        cluster = self.cluster
        plan = cluster.reconcile()
        counted = [p for p in cluster.pods("worker") if p.life(cluster.now) in (Life.LIVE, Life.LEAVING)]
        created = [
            c for c in plan.creates if "-worker-" in c.body["metadata"]["name"] and c.body["kind"] == "Pod"
        ]
        assert not created or len(counted) <= cluster.run.spec.workers.replicas
        vanished = [d for d in plan.deletes if d.kind == "Pod" and ("Pod", d.name) not in cluster.objects]
        if not vanished:  # a pod that ran nowhere is gone at once, and its place free
            again = cluster.plan()
            # An ended pod goes, and its successor comes, at the second look: its end had to be written down first.
            replaced = any(delete.why == "it ended" for delete in again.deletes)
            left = [str(a) for a in again.actions if not (replaced or is_second_look(a))]
            assert left == [], f"{left} after {[str(a) for a in plan.actions]}"

    @invariant()
    def one_group_of_learners(self) -> None:
        if hasattr(self, "cluster"):
            live = [p for p in self.cluster.pods("learner") if p.life(self.cluster.now) is Life.LIVE]
            assert len(live) <= self.cluster.run.spec.learner.replicas

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        cluster = self.cluster
        cluster.schedulable = True
        cluster.change(suspend=False)
        for name in cluster.names("worker") + cluster.names("learner"):
            if cluster.objects["Pod", name].get("status", {}).get("phase") == "Pending":
                cluster.start(name)
        for _ in range(30):
            plan = cluster.reconcile()
            cluster.kubelet()
            if not plan.actions and plan.wake_at is None and cluster.condition("Ready")[0] == "True":
                break
            cluster.now += 320
        assert len(cluster.pods("worker")) == cluster.run.spec.workers.replicas
        assert len(cluster.pods("learner")) == cluster.run.spec.learner.replicas
        assert cluster.condition("Ready") == ("True", "Running")
        assert cluster.plan().actions == []


def is_second_look(action: Any) -> bool:
    """Redis stops once no program is left that needs it, and a manifest goes once nobody reads it."""
    return getattr(action, "kind", "") in ("StatefulSet", "ConfigMap") or (
        getattr(action, "why", "") == "the run is suspended"
    )


TestAnyCluster = AnyCluster.TestCase
TestAnyCluster.settings = hypothesis_settings(
    max_examples=15,
    stateful_step_count=20,
    deadline=None,
    phases=[Phase.generate],
)
