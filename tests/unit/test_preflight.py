"""``webgym submit --dry-run``: what is found, and whether the run could work."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from client_cluster import Lab, lab
from operator_runs import SETTINGS, VERSIONS, make_run, schema_errors
from operator_server import failure

from webgym.spec import KIND
from webgym_operator.client.installation import choose, parse_installation
from webgym_operator.client.preflight.estimate import Needs, needs_of, total, total_finding
from webgym_operator.client.preflight.finding import Finding
from webgym_operator.client.preflight.images import full_name, image_findings
from webgym_operator.client.preflight.nodes import node_findings, parse_nodes
from webgym_operator.client.preflight.quotas import limit_findings, quota_findings
from webgym_operator.client.preflight.storage import claim_finding, references, storage_findings
from webgym_operator.client.submit import SubmitCommand
from webgym_operator.run import Object
from webgym_operator.sizing import learner_size, redis_size, worker_size

__all__ = ["lab"]

SMALL = {
    "workers": {"maxBrowsers": 3, "memoryPerBrowser": "1Gi", "resources": {"requests": {"cpu": "2"}}},
    "learner": {"replay": {"capacityBytes": "512Mi"}},
}


def needs(spec: dict[str, Any] | None = None) -> Needs:
    run = make_run({**SMALL, **(spec or {})})
    assert run.manifest is not None
    return needs_of(run.manifest, "lab", SETTINGS)


def node(name: str = "n", cpu: str = "16", memory: str = "64Gi", **more: Any) -> Object:
    images = more.pop("images", ["docker.io/library/worker:1", "learner:1", "docker.io/library/redis:1"])
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110", **more.pop("resources", {})}
    return {
        "metadata": {"name": name, "namespace": "", "uid": name, "labels": more.pop("labels", {})},
        "spec": more,
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [{"names": [image]} for image in images],
        },
    }


def level(findings: list[Finding], subject: str) -> tuple[str, str]:
    return next((f.level, f"{f.text}; {f.mend}") for f in findings if f.subject == subject)


# --- what a run asks for ---------------------------------------------------------------------------------------------


def test_numbers_are_those_that_the_operator_asks_for() -> None:
    found = needs({"workers": {**SMALL["workers"], "replicas": 2}})
    run = make_run({**SMALL})
    by_role = {need.role: need for need in found.pods}
    for role, size in (("worker", worker_size), ("learner", learner_size), ("redis", redis_size)):
        assert by_role[role].spec["containers"][0]["resources"] == size(run.spec).as_object()
    assert found.browsers == 6
    assert total(found.pods)["cpu"] == Decimal("0.1") + Decimal("0.5") + 2 * Decimal(2)
    said = total_finding(found).text
    assert said.startswith("6 browsers, 1 learner, 2 workers, 4.6 cpu, ")
    assert [claim["metadata"]["name"] for claim in found.claims] == ["demo-redis", "demo-00000000"]
    for need in found.pods:
        assert schema_errors({"kind": "Pod", **need.pod}, VERSIONS[-1]) == []


def test_a_server_of_ones_own_needs_no_redis() -> None:
    found = needs({"redis": {"url": "redis://there:6379/0"}})
    assert [need.role for need in found.pods] == ["learner", "worker"]
    assert len(found.claims) == 1


# --- nodes -----------------------------------------------------------------------------------------------------------


def place(nodes: list[Object], found: Needs, pods: list[Object] | None = None, **more: Any) -> list[Finding]:
    return node_findings(parse_nodes(nodes, pods), found.pods, **{"autoscaled": False, **more})


def test_a_large_node_takes_everything() -> None:
    findings = place([node()], needs())
    assert {f.level for f in findings} == {"ok"}


def test_a_pod_that_fits_nowhere_is_said_with_what_is_short() -> None:
    found = place([node(memory="4Gi")], needs())
    assert level(found, "worker nodes")[0] == "bad"
    assert (
        "GiB memory, and the largest node that would take it has 4.0 GiB memory"
        in level(found, "worker nodes")[1]
    )
    found = place([node(memory="4Gi")], needs(), autoscaled=True)
    assert level(found, "worker nodes")[0] == "warning"


def test_a_gpu_that_no_node_has() -> None:
    wanted = needs({"learner": {**SMALL["learner"], "resources": {"limits": {"nvidia.com/gpu": 1}}}})
    assert "1 nvidia.com/gpu" in level(place([node()], wanted), "learner nodes")[1]
    assert level(place([node()], wanted), "learner nodes")[0] == "bad"
    gpu = node("gpu", resources={"nvidia.com/gpu": "1"})
    assert level(place([node(), gpu], wanted), "learner nodes") == (
        "ok",
        level(place([node(), gpu], wanted), "learner nodes")[1],
    )
    assert ": gpu" in level(place([node(), gpu], wanted), "learner nodes")[1]


@pytest.mark.parametrize(
    ("more", "tolerations", "why"),
    [
        (
            {"taints": [{"key": "gpu", "value": "a", "effect": "NoSchedule"}]},
            [],
            "has the taint gpu=a:NoSchedule",
        ),
        ({"unschedulable": True}, [], "has the taint node.kubernetes.io/unschedulable:NoSchedule"),
        ({"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]}, [], ""),
        ({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, [{"key": "gpu", "operator": "Exists"}], ""),
        (
            {"taints": [{"key": "gpu", "value": "a", "effect": "NoExecute"}]},
            [{"key": "gpu", "value": "b"}],
            "has",
        ),
        ({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, [{"operator": "Exists"}], ""),
    ],
)
def test_taints_keep_pods_away_that_do_not_tolerate_them(
    more: dict[str, Any], tolerations: list[dict[str, Any]], why: str
) -> None:
    wanted = needs({"workers": {**SMALL["workers"], "tolerations": tolerations}})
    found = level(place([node(**more)], wanted), "worker nodes")
    assert found[0] == ("bad" if why else "ok")
    assert why in found[1]


def test_labels_choose_nodes() -> None:
    wanted = needs({"workers": {**SMALL["workers"], "nodeSelector": {"display": "xvfb"}}})
    found = level(place([node()], wanted), "worker nodes")
    assert found[0] == "bad"
    assert "of 1, 1 lacks the label display=xvfb; correct spec.workers.nodeSelector" in found[1]
    assert level(place([node(labels={"display": "xvfb"})], wanted), "worker nodes")[0] == "ok"


def test_what_others_use_is_not_free() -> None:
    other = {
        "spec": {"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": "12500m"}}}]},
        "status": {"phase": "Running"},
    }
    wanted = needs({"workers": {**SMALL["workers"], "replicas": 3}})
    found = level(place([node()], wanted, [other]), "worker nodes")
    assert found[0] == "warning"
    assert "1 of 3 worker pods fit now (1 on n)" in found[1]
    many = needs({"workers": {**SMALL["workers"], "replicas": 9}})
    assert "more than 7 never fit" in level(place([node()], many, [other]), "worker nodes")[1]
    ended = {**other, "status": {"phase": "Succeeded"}}
    assert level(place([node()], wanted, [ended]), "worker nodes")[0] == "ok"


def test_a_node_that_is_full_with_the_run_itself_never_has_room() -> None:
    found = level(place([node(cpu="2")], needs()), "worker nodes")
    assert found[0] == "bad"
    assert (
        "fits beside the run's other pods, even if nothing else ran; lower spec.workers.maxBrowsers"
        in found[1]
    )
    busy = {
        "spec": {"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": "1900m"}}}]},
        "status": {"phase": "Running"},
    }
    findings = place([node(cpu="2")], needs(), [busy])
    assert [f.level for f in findings] == ["ok", "warning", "bad"], findings
    assert level(place([node("a", cpu="2"), node("b", cpu="2")], needs()), "worker nodes")[0] == "warning"


# --- quotas and limits -----------------------------------------------------------------------------------------------


def quota(hard: dict[str, str], used: dict[str, str] | None = None) -> Object:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used or {}}}


def limits(**rule: Any) -> Object:
    return {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", **rule}]}}


@pytest.mark.parametrize(
    ("hard", "used", "text"),
    [
        ({"requests.cpu": "100", "pods": "50", "requests.storage": "1Ti"}, {}, "has room"),
        ({"requests.cpu": "4"}, {"requests.cpu": "3"}, "q leaves 1 requests.cpu, and the run asks for 2.6"),
        ({"cpu": "2"}, {}, "q leaves 2 cpu, and the run asks for 2.6 cpu"),
        ({"pods": "2"}, {}, "q leaves 2 pods, and the run asks for 3 pods"),
        ({"persistentvolumeclaims": "1"}, {}, "the run asks for 2 persistentvolumeclaims"),
        ({"requests.storage": "5Gi"}, {}, "the run asks for 1"),
        ({"count/configmaps": "0"}, {}, "the run asks for 1 count/configmaps"),
        ({"limits.cpu": "100"}, {}, "q bounds limits.cpu, of which worker pods say nothing"),
    ],
)
def test_quotas(hard: dict[str, str], used: dict[str, str], text: str) -> None:
    found = quota_findings([quota(hard, used)], [], needs())
    assert any(text in f.text for f in found), found
    assert all((f.level == "ok") == (text == "has room") for f in found)


def test_defaults_of_a_limit_range_fill_in_what_a_quota_wants_said() -> None:
    found = quota_findings([quota({"limits.cpu": "100"})], [limits(default={"cpu": "4"})], needs())
    assert [f.level for f in found] == ["ok"]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"max": {"memory": "100Gi"}}, ""),
        ({"max": {"memory": "1Gi"}}, "l allows 1.0 GiB memory to container worker of a worker pod"),
        ({"max": {"cpu": "1"}}, "l allows 1 cpu to container worker of a worker pod, which asks for 2 cpu"),
        # The server completes such a rule so; a request above the limit that follows is refused.
        (
            {"max": {"cpu": "1"}, "default": {"cpu": "1"}},
            "to container worker of a worker pod, which asks for 2 cpu",
        ),
        ({"max": {"x.y/z": "1"}}, "l bounds x.y/z, for which container worker of a worker pod has no limit"),
        ({"min": {"cpu": "500m"}}, "l wants at least 0.5 cpu of container redis of a redis pod"),
        ({"type": "Pod", "max": {"memory": "1Gi"}}, "l allows 1.0 GiB memory to a worker pod"),
        (
            {"type": "PersistentVolumeClaim", "max": {"storage": "5Gi"}},
            "to volume demo-00000000, which asks for 10.0",
        ),
        ({"maxLimitRequestRatio": {"memory": "1"}}, "container folder of a learner pod has more"),
    ],
)
def test_limit_ranges(rule: dict[str, Any], text: str) -> None:
    found = limit_findings([limits(**rule)], needs())
    if not text:
        assert [f.level for f in found] == ["ok"]
    else:
        assert any(text in f.text and f.level == "bad" for f in found), found


# --- images, storage, references -------------------------------------------------------------------------------------


def test_images_have_one_full_name() -> None:
    assert full_name("a") == "docker.io/library/a:latest"
    assert full_name("a/b:1") == "docker.io/a/b:1"
    assert full_name("host:5000/b") == "host:5000/b:latest"
    assert full_name("localhost/b@sha256:0") == "localhost/b@sha256:0"


@pytest.mark.parametrize(
    ("images", "policy", "expected"),
    [
        (["docker.io/library/worker:1"], "Never", "ok"),
        (["docker.io/library/worker:2"], "Never", "bad"),
        ([], "IfNotPresent", "warning"),
        ([f"x:{n}" for n in range(50)], "Never", "warning"),
    ],
)
def test_images(images: list[str], policy: str, expected: str) -> None:
    found = image_findings(parse_nodes([node(images=images)], None), needs().pods, policy)
    assert level(found, "worker image")[0] == expected


def test_images_on_some_nodes() -> None:
    nodes = parse_nodes([node("a"), node("b", images=[])], None)
    assert level(image_findings(nodes, needs().pods, "IfNotPresent"), "worker image")[0] == "ok"
    assert level(image_findings(nodes, needs().pods, "Never"), "worker image")[0] == "warning"


def storage_class(name: str, *, default: bool = False) -> Object:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {"metadata": {"name": name, "annotations": annotations}}


def test_volumes_need_a_class_or_a_free_volume() -> None:
    own = needs().claims
    assert {f.level for f in storage_findings(own, [storage_class("fast", default=True)], [])} == {"ok"}
    found = storage_findings(own, [storage_class("fast")], [])
    assert {f.level for f in found} == {"bad"}
    assert (
        "no default storage class for 10.0 GiB storage (there is fast)" in level(found, "learner volume")[1]
    )
    free = {
        "metadata": {"name": "pv"},
        "spec": {"capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": "Available"},
    }
    assert {f.level for f in storage_findings(own, [], [free])} == {"ok"}
    named = needs({"storage": {"storageClassName": "slow"}}).claims
    assert level(storage_findings(named, [storage_class("fast")], []), "learner volume")[0] == "bad"


def test_a_claim_of_ones_own() -> None:
    assert needs({"storage": {"existingClaim": "mine"}}).claims[-1]["metadata"]["name"] == "demo-redis"
    assert claim_finding(None, "mine").level == "bad"
    claim = {"spec": {"accessModes": ["ReadWriteOnce"]}, "status": {"phase": "Bound"}}
    assert claim_finding(claim, "mine").level == "ok"
    assert claim_finding({**claim, "spec": {"accessModes": ["ReadOnlyMany"]}}, "mine").level == "bad"


def test_references_name_where_they_are_written() -> None:
    key = {"name": "hub", "key": "token"}
    run = make_run(
        {
            "learner": {"env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": key}}]},
            "redis": {
                "url": "rediss://r:1/0",
                "tls": {"secretName": "ca"},
                "passwordFrom": {"secretKeyRef": key},
            },
        }
    )
    assert run.manifest is not None
    assert list(references(run.manifest, ["pull"])) == [
        ("Secret", "hub", "spec.learner.env[0]"),
        ("Secret", "hub", "spec.redis.passwordFrom"),
        ("Secret", "ca", "spec.redis.tls.secretName"),
        ("Secret", "pull", "images.pullSecrets of the chart"),
    ]


# --- the operator ----------------------------------------------------------------------------------------------------


def deployment(*, alive: bool = True, watches: str = "", name: str = "webgym") -> Object:
    environment = {
        "WEBGYM_WORKER_IMAGE": "worker:1",
        "WEBGYM_LEARNER_IMAGE": "learner:1",
        "WEBGYM_REDIS_IMAGE": "redis:1",
        "WEBGYM_WATCH_NAMESPACES": watches,
        "WEBGYM_IMAGE_PULL_POLICY": "Never",
    }
    listed: list[Object] = [{"name": key, "value": value} for key, value in environment.items()]
    listed.append(
        {"name": "WEBGYM_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    )
    labels = {"app.kubernetes.io/name": "webgym", "app.kubernetes.io/component": "operator"}
    return {
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "webgym", "uid": name, "labels": labels},
        "spec": {"template": {"spec": {"containers": [{"name": "operator", "env": listed}]}}},
        "status": {"availableReplicas": 1} if alive else {},
    }


def test_the_operator_is_read_from_its_deployment() -> None:
    found = parse_installation(deployment())
    assert found.settings is not None
    assert (found.name, found.alive, found.settings.namespace) == ("webgym/webgym", True, "webgym")
    assert found.settings.image_pull_policy == "Never"
    none = deployment(alive=False)
    assert "it has no ready pod" in parse_installation(none).trouble
    none["spec"]["replicas"] = 0
    none["status"] = {"conditions": [{"type": "Available", "status": "True", "message": "it has enough"}]}
    assert "it is scaled to no pod" in parse_installation(none).trouble


def test_an_operator_that_looks_elsewhere_is_none() -> None:
    found = choose([deployment(watches="other")], "lab", everywhere=True)
    assert (found.name, found.unsure) == ("", False)
    assert "add lab to watchNamespaces" in found.trouble
    found = choose(
        [deployment(watches="lab,b"), deployment(name="second", alive=False)], "lab", everywhere=True
    )
    assert (found.name, found.others) == ("webgym/webgym", ("webgym/second",))
    assert "no operator is installed" in choose([], "lab", everywhere=True).trouble
    assert choose([], "lab", everywhere=False).unsure


# --- the whole -------------------------------------------------------------------------------------------------------


def furnish(lab: Lab) -> None:
    lab.server.put(deployment(), "ADDED")
    lab.server.put({"kind": "Node", **node()}, "ADDED")
    lab.add(
        "StorageClass", "standard", namespace="", metadata=storage_class("standard", default=True)["metadata"]
    )


async def dry(lab: Lab, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[Finding]]:
    code = await lab.call(SubmitCommand, str(lab.manifest), "--dry-run", "--json", *more)
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] == (code == 0)
    return code, [Finding(**finding) for finding in told["findings"]]


async def test_a_cluster_that_has_everything(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    furnish(lab)
    code, findings = await dry(lab, capsys)
    assert code == 0, findings
    assert {f.level for f in findings} == {"ok"}, findings
    assert not lab.server.of(KIND)
    assert not lab.server.of("Pod")
    assert await lab.call(SubmitCommand, str(lab.manifest), "--dry-run") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "run demo can be submitted"
    assert any(line.startswith("ok    asks for") for line in said)


async def test_an_empty_cluster(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    code, findings = await dry(lab, capsys)
    assert code == 1
    wrong = {f.subject for f in findings if f.level == "bad"}
    assert {"operator", "worker nodes", "learner nodes", "learner volume"} <= wrong


async def test_what_the_server_refuses_is_told(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    furnish(lab)
    lab.server.refuse = lambda verb, kind, body: (
        failure(403, "Forbidden", 'pods "demo" is forbidden: violates PodSecurity "restricted"')
        if (verb, kind) == ("POST", "Pod")
        else None
    )
    code, findings = await dry(lab, capsys)
    assert code == 1
    assert "violates PodSecurity" in level(findings, "admission")[1]


async def test_what_may_not_be_looked_at_is_no_failure(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    furnish(lab)

    def refuse(verb: str, kind: str, body: Object) -> Any:
        if kind in (KIND, "PersistentVolumeClaim"):
            return None
        words = (
            f'User "jo" cannot {verb.lower()} resource "{kind.lower()}s" in API group "" at the cluster scope'
        )
        return failure(403, "Forbidden", words)

    lab.server.refuse = refuse
    code, findings = await dry(lab, capsys)
    assert code == 0
    assert {f.subject for f in findings if f.level == "unknown"} >= {
        "definition",
        "operator",
        "nodes",
        "quota",
        "storage",
    }


async def test_a_run_of_the_name_and_missing_secrets(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    furnish(lab)
    lab.add_run()
    lab.manifest.write_text(
        lab.manifest.read_text()
        + "  learner:\n    env:\n    - name: HF_TOKEN\n      valueFrom: {secretKeyRef: {name: hub, key: token}}\n"
    )
    code, findings = await dry(lab, capsys)
    assert code == 1
    assert "a run demo exists" in level(findings, "the run")[1]
    assert "there is no Secret hub, which spec.learner.env[0] names" in level(findings, "references")[1]
    lab.add("Secret", "hub")
    pod = lab.add_pod("learner")
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "15"}}
    lab.server.put(pod)
    code, findings = await dry(lab, capsys, "--replace")
    assert code == 0
    assert level(findings, "worker nodes")[0] == "ok"
