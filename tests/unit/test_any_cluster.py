"""Whatever a cluster does to a run: never more pods than asked for, and all is well in the end."""

from __future__ import annotations

from typing import Any

from hypothesis import Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from operator_cluster import Cluster, workers

from webgym_operator.observed import Life


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
            before = cluster.writes
            plan = cluster.reconcile()
            cluster.kubelet()
            # After a write of the status alone the operator looks again, too: an end that is written down may go.
            settled = cluster.writes == before and plan.wake_at is None
            if settled and cluster.condition("Ready")[0] == "True":
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
