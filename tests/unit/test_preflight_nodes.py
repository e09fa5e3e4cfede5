"""``webgym submit --dry-run``: whether the nodes have room for the pods of a run."""

from __future__ import annotations

from typing import Any

import pytest
from preflight_parts import SMALL, level, needs, node

from webgym_operator.client.preflight.estimate import Needs
from webgym_operator.client.preflight.finding import Finding
from webgym_operator.client.preflight.nodes import node_findings, parse_nodes
from webgym_operator.run import Object


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
