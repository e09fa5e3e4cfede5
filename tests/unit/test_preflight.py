"""``webgym submit --dry-run``: what is found, and whether the run could work."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from client_cluster import Lab, lab
from operator_runs import VERSIONS, make_run, schema_errors
from operator_server import failure
from preflight_parts import SMALL, deployment, level, needs, node, storage_class

from webgym.spec import KIND
from webgym_operator.client.installation import choose, parse_installation
from webgym_operator.client.preflight.estimate import total, total_finding
from webgym_operator.client.preflight.finding import Finding
from webgym_operator.client.submit import SubmitCommand
from webgym_operator.run import Object
from webgym_operator.sizing import learner_size, redis_size, worker_size

__all__ = ["lab"]


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


# --- the operator ----------------------------------------------------------------------------------------------------


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


async def test_a_redis_of_the_users_is_not_passed_over(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    furnish(lab)
    code, findings = await dry(lab, capsys, "--set", "redis.url=redis://cache.infra.svc.cluster.local:6379/0")
    assert code == 1
    assert level(findings, "Redis") == (
        "bad",
        "there is no Service cache in namespace infra, which redis.url names; create it, or correct the URL",
    )
    lab.add("Service", "cache", namespace="infra")
    for url in ("redis://cache.infra.svc:6379/0", "redis://cache.example.com/0"):
        code, findings = await dry(lab, capsys, "--set", f"redis.url={url}")
        assert code == 0
        told = level(findings, "Redis")
        assert told[0] == "unknown"
        assert told[1].startswith(f"{url} is not tried from here")


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
