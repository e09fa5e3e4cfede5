"""``webgym submit --dry-run``: images, volumes and Secrets that a run names."""

from __future__ import annotations

import pytest
from operator_runs import make_run
from preflight_parts import level, needs, node, storage_class

from webgym_operator.client.preflight.images import full_name, image_findings
from webgym_operator.client.preflight.nodes import parse_nodes
from webgym_operator.client.preflight.storage import claim_finding, references, storage_findings


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
