"""What a run consists of on a cluster: valid for every supported server, confined, named by rule."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_runs import ROOT, SETTINGS, UID, VERSIONS, example, make_run, schema_errors
from ruamel.yaml import YAML

from webgym.errors import UsageError
from webgym.manifest import parse_manifest
from webgym.spec import Quantity
from webgym_operator.ownership import root_owned_classes
from webgym_operator.podspec import USER, manifest_of_pods, manifest_text
from webgym_operator.redis_objects import Passwords
from webgym_operator.resources import CHILD_KINDS, config_map, pod_template, support_objects
from webgym_operator.run import Object, Run
from webgym_operator.settings import PRIVATE_NETWORKS, Settings
from webgym_operator.sizing import browsers_per_worker, learner_size, redis_size, worker_size

PASSWORDS = Passwords("1" * 64, "2" * 64, "3" * 64)


def everything(run: Run, settings: Settings = SETTINGS, workers: int = 3) -> list[Object]:
    own = run.spec.redis.url is None
    passwords = PASSWORDS if own else None
    secret = PASSWORDS.fingerprint if own else ""
    made = [*support_objects(run, settings, passwords, workers=workers), config_map(run, workers)]
    config = made[-1]["metadata"]["name"]
    made += [pod_template(run, settings, "worker", config, secret).pod(i, 0) for i in range(2)]
    ranks = range(run.spec.learner.replicas)
    return made + [pod_template(run, settings, "learner", config, secret).pod(i, 2) for i in ranks]


def named(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return found


def pods(run: Run, role: str, settings: Settings = SETTINGS) -> list[Object]:
    found = [o for o in everything(run, settings) if o["kind"] == "Pod"]
    return [o for o in found if o["metadata"]["labels"]["webgym.io/role"] == role]


def environment(pod: Object) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in pod["spec"]["containers"][0]["env"]}


EXTERNAL = {
    "redis": {
        "url": "rediss://redis.example.com:6380/0",
        "username": "me",
        "passwordFrom": {"secretKeyRef": {"name": "mine", "key": "password"}},
        "tls": {"secretName": "certificates", "serverName": "redis"},
    }
}
RUNS = {
    "plain": make_run(),
    "cluster": example("cluster.yaml"),
    "longest name": make_run(name="a" * 50),
    "external": make_run(EXTERNAL),
    "several learners": make_run(
        {"learner": {"replicas": 2, "resources": {"limits": {"nvidia.com/gpu": 1}}}}
    ),
    "claim of the user": make_run({"storage": {"existingClaim": "mine"}, "browser": {"egress": "Offline"}}),
    "not retained": make_run({"storage": {"retain": False, "storageClassName": "fast"}}),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", RUNS)
def test_every_object_is_valid_for_every_supported_server(name: str, version: str) -> None:
    settings = Settings("w", "l", "r", image_pull_secrets=("pull",), redis_persistent=name != "plain")
    assert [
        error for made in everything(RUNS[name], settings) for error in schema_errors(made, version)
    ] == []


def test_the_schemas_see_what_a_server_refuses() -> None:
    (pod,) = pods(RUNS["plain"], "learner")
    wrong = copy.deepcopy(pod)
    wrong["spec"]["containers"][0]["resorces"] = {}
    assert schema_errors(wrong, VERSIONS[-1])


@pytest.mark.parametrize("name", RUNS)
def test_names_are_unique_short_and_made_for_the_run(name: str) -> None:
    run = RUNS[name]
    made = everything(run)
    keys = [(o["kind"], o["metadata"]["name"]) for o in made]
    assert len(set(keys)) == len(keys)
    for one in made:
        metadata = one["metadata"]
        assert metadata["name"].startswith(run.name)
        assert one["kind"] in CHILD_KINDS
        assert len(metadata["name"]) <= (63 if one["kind"] in ("Service", "StatefulSet") else 253)
        assert all(len(value) <= 63 for value in metadata["labels"].values())
        assert metadata["labels"]["webgym.io/run"] == run.name


def test_all_but_a_retained_volume_go_with_the_run() -> None:
    for name, run in RUNS.items():
        for one in everything(run):
            owners = one["metadata"]["ownerReferences"]
            kept = one["kind"] == "PersistentVolumeClaim" and one["metadata"]["name"] != run.redis_name
            if kept and run.spec.storage.retain:
                assert owners == [], name
            else:
                assert [owner["uid"] for owner in owners] == [UID], name


@pytest.mark.parametrize("name", RUNS)
def test_pods_are_confined(name: str) -> None:
    specs = [o["spec"] for o in everything(RUNS[name]) if o["kind"] == "Pod"]
    specs += [o["spec"]["template"]["spec"] for o in everything(RUNS[name]) if o["kind"] == "StatefulSet"]
    assert len(specs) >= 3
    for spec in specs:
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert not any("hostPath" in volume for volume in spec["volumes"])
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            security = container["securityContext"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert "memory" in container["resources"]["limits"]


def test_no_password_stands_anywhere_but_in_the_secret() -> None:
    for run in RUNS.values():
        for one in everything(run):
            if one["kind"] != "Secret":
                assert not any(digit * 64 in str(one) for digit in "123")


def test_a_worker_s_shared_memory_counts_in_its_memory_limit() -> None:
    (first, _) = pods(make_run({"workers": {"maxBrowsers": 4, "memoryPerBrowser": "1Gi"}}), "worker")
    (shm,) = [v["emptyDir"] for v in first["spec"]["volumes"] if v["name"] == "shm"]
    limit = int(Quantity(first["spec"]["containers"][0]["resources"]["limits"]["memory"]))
    assert shm["medium"] == "Memory"
    assert limit >= 4 * 2**30 + int(Quantity(shm["sizeLimit"])) + 2**29


@given(
    cpu=st.one_of(st.none(), st.integers(1, 64)),
    memory=st.one_of(st.none(), st.integers(1, 256)),
    most=st.one_of(st.none(), st.integers(1, 64)),
    per_browser=st.integers(1, 8),
)
def test_browsers_fit_into_what_a_worker_is_given(
    cpu: int | None, memory: int | None, most: int | None, per_browser: int
) -> None:
    asked = {"cpu": cpu and str(cpu), "memory": memory and f"{memory}Gi"}
    workers: dict[str, Any] = {
        "resources": {"limits": {name: amount for name, amount in asked.items() if amount}},
        "memoryPerBrowser": f"{per_browser}Gi",
        **({"maxBrowsers": most} if most else {}),
    }
    spec = make_run({"workers": workers}).spec
    browsers = browsers_per_worker(spec)
    size = worker_size(spec)
    assert 1 <= browsers <= (most or 96)
    assert browsers == 1 or browsers * per_browser * 2**30 <= int(Quantity(size.limits["memory"]))
    assert cpu is None or browsers == 1 or browsers <= cpu * 1.5
    for name, amount in size.requests.items():
        assert name not in size.limits or Quantity(amount) <= Quantity(size.limits[name])


def test_a_run_that_says_nothing_of_cores_fits_on_a_node_of_two() -> None:
    run = make_run({})
    sizes = (worker_size(run.spec), learner_size(run.spec), redis_size(run.spec))
    assert sum(float(Quantity(size.requests["cpu"])) for size in sizes) <= 1.75
    assert browsers_per_worker(run.spec) == 3
    assert all("cpu" not in size.limits for size in sizes)


def test_what_the_user_asks_for_is_kept() -> None:
    run = RUNS["cluster"]
    (worker, _) = pods(run, "worker")
    spec = worker["spec"]
    assert spec["nodeSelector"] == {"webgym.io/xvfb": "true"}
    assert {"key": "spot", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "4", "memory": "8Gi"}
    (learner,) = pods(run, "learner")
    resources = learner["spec"]["containers"][0]["resources"]
    assert resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"] == "1"
    assert environment(learner)["HF_TOKEN"] == {
        "secretKeyRef": {"name": "model-hub", "key": "token", "optional": True}
    }


def test_the_manifest_of_pods_is_one_that_programs_accept() -> None:
    for run in (*RUNS.values(), make_run({"mode": "Synchronous", "workers": {"maxBrowsers": 1}})):
        read = parse_manifest(manifest_text(run, 1))
        assert read.spec.tasks == run.spec.tasks
        assert read.spec.learner.learning_rate == run.spec.learner.learning_rate
        assert read.spec.workers.max_browsers == browsers_per_worker(run.spec)
        assert read.spec.workers.env == []


def test_an_outside_server_is_reached_by_reference() -> None:
    made = everything(RUNS["external"])
    assert not {"Secret", "StatefulSet"} & {o["kind"] for o in made}
    (worker, _) = pods(RUNS["external"], "worker")
    assert environment(worker)["WEBGYM_REDIS_URL"] == "rediss://redis.example.com:6380/0"
    assert environment(worker)["WEBGYM_REDIS_PASSWORD"] == {
        "secretKeyRef": {"name": "mine", "key": "password"}
    }
    tls = manifest_of_pods(RUNS["external"], 1)["spec"]["redis"]["tls"]
    assert tls == {"caFile": "/etc/webgym-redis/ca.crt", "serverName": "redis"}


def test_learners_meet_at_rank_0() -> None:
    first, second = pods(RUNS["several learners"], "learner")
    assert environment(second)["RANK"] == "1"
    assert environment(second)["MASTER_ADDR"] == "learner-0.demo-learner"
    assert (first["spec"]["hostname"], first["spec"]["subdomain"]) == ("learner-0", "demo-learner")
    claims = ["persistentVolumeClaim" in str(pod["spec"]["volumes"]) for pod in (first, second)]
    assert claims == [True, False]


@pytest.mark.parametrize("name", RUNS)
def test_there_is_one_policy_for_each_role(name: str) -> None:
    run = RUNS[name]
    policies = [o for o in everything(run) if o["kind"] == "NetworkPolicy"]
    roles = [p["spec"]["podSelector"]["matchLabels"]["webgym.io/role"] for p in policies]
    assert sorted(roles) == sorted(["learner", "worker"] + (["redis"] if run.spec.redis.url is None else []))
    assert all(p["spec"]["policyTypes"] == ["Ingress", "Egress"] for p in policies)


def test_pages_reach_the_internet_and_nothing_private() -> None:
    settings = Settings.from_env(
        {
            "WEBGYM_WORKER_IMAGE": "w",
            "WEBGYM_LEARNER_IMAGE": "l",
            "WEBGYM_REDIS_IMAGE": "r",
            "WEBGYM_PRIVATE_NETWORKS": "203.0.113.0/24",
        }
    )
    policy = named(everything(make_run(), settings), "NetworkPolicy", "demo-worker")
    blocks = [to["ipBlock"] for rule in policy["spec"]["egress"] for to in rule["to"] if "ipBlock" in to]
    open_blocks = {b["cidr"]: b["except"] for b in blocks if b["cidr"] in ("0.0.0.0/0", "::/0")}
    assert {*PRIVATE_NETWORKS, "203.0.113.0/24"} == {*open_blocks["0.0.0.0/0"], *open_blocks["::/0"]}
    offline = named(everything(RUNS["claim of the user"]), "NetworkPolicy", "demo-worker")
    assert "0.0.0.0/0" not in str(offline)


def hash_of(spec: dict[str, Any], role: str, secret: str = "") -> str:
    return pod_template(make_run(spec), SETTINGS, role, "any", secret).hash


@pytest.mark.parametrize(
    ("change", "replaced"),
    [
        ({"workers": {"replicas": 7}}, ""),
        ({"workers": {"autoscaling": {"mode": "Learner", "max": 40}}}, ""),
        ({"suspend": True, "backoffLimit": 1, "ttlSecondsAfterFinished": 5}, ""),
        ({"stop": {"seconds": 50}}, "learner"),
        ({"learner": {"learningRate": 0.1}}, "learner"),
        ({"workers": {"image": "other:2"}}, "worker"),
        ({"workers": {"env": [{"name": "A", "value": "b"}]}}, "worker"),
        ({"workers": {"maxBrowsers": 1}}, "worker"),
        ({"learner": {"nStep": 5}}, "learner worker"),
        ({"browser": {"width": 800}}, "learner worker"),
        ({"task": {"name": "miniwob.click-link"}}, "learner worker"),
    ],
)
def test_a_change_replaces_the_pods_that_it_concerns(change: dict[str, Any], replaced: str) -> None:
    found = [role for role in ("learner", "worker") if hash_of(change, role) != hash_of({}, role)]
    assert " ".join(found) == replaced


def test_other_passwords_replace_all_pods() -> None:
    assert all(hash_of({}, role) != hash_of({}, role, "other") for role in ("learner", "worker"))


def test_passwords_are_read_back() -> None:
    secret = named(everything(make_run()), "Secret", "demo-redis")
    assert Passwords.parse(secret) == PASSWORDS
    assert Passwords.parse({"data": {}}) is Passwords.parse({}) is None
    assert Passwords.generate() != Passwords.generate()
    assert "1" * 64 not in repr(PASSWORDS)


def test_an_invalid_spec_is_a_problem_and_no_exception() -> None:
    body = {
        "apiVersion": "webgym.io/v1alpha1",
        "kind": "WebGymRun",
        "metadata": {"name": "x", "namespace": "lab", "uid": UID},
        "spec": {"task": {"name": "a.b"}, "workers": {"autoscaling": {"min": 5, "max": 2}}, "sede": 1},
    }
    run = Run.parse(body)
    assert run.manifest is None
    assert "spec.workers.autoscaling.min: min may not exceed max" in run.problem
    assert "spec.sede" in run.problem


def test_seed_and_algorithm_stay_on_servers_that_do_not_enforce_it() -> None:
    run = Run.parse(
        {
            "apiVersion": "webgym.io/v1alpha1",
            "kind": "WebGymRun",
            "metadata": {"name": "x", "namespace": "lab", "uid": UID},
            "spec": {"task": {"name": "a.b"}, "seed": 2},
            "status": {"seed": 1, "algorithm": "DQN"},
        }
    )
    assert run.problem == "the seed of a run cannot be changed (1 to 2); create another run"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WEBGYM_WORKER_IMAGE", ""),
        ("WEBGYM_IMAGE_PULL_POLICY", "Sometimes"),
        ("WEBGYM_PRIVATE_NETWORKS", "10.0.0.1/8"),
        ("WEBGYM_WORKER_SECCOMP", '{"type": "Localhost"}'),
        ("WEBGYM_RESYNC_SECONDS", "0"),
        ("WEBGYM_REDIS_PERSISTENT", "perhaps"),
    ],
)
def test_wrong_settings_are_named(name: str, value: str) -> None:
    images = {f"WEBGYM_{role}_IMAGE": "x" for role in ("WORKER", "LEARNER", "REDIS")}
    assert Settings.from_env(images)
    with pytest.raises(UsageError, match=name):
        Settings.from_env(images | {name: value})


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples" / "kubernetes").glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_examples_for_clusters_are_valid(path: Path) -> None:
    documents = list(YAML(typ="safe").load_all(path))
    runs = [one for one in documents if one["kind"] == "WebGymRun"]
    assert len(runs) == 1
    metadata = runs[0]["metadata"] | {"namespace": "lab", "uid": UID}
    run = Run.parse(runs[0] | {"metadata": metadata})
    assert run.problem == ""
    assert everything(run)
    for other in documents:
        if other["kind"] != "WebGymRun":
            assert other["spec"]["scaleTargetRef"]["name"] == metadata["name"]
            assert run.spec.workers.autoscaling.mode == "External"


@pytest.mark.parametrize("name", ["operator", "worker", "learner"])
def test_images_run_as_the_user_that_pods_name(name: str) -> None:
    text = (ROOT / "images" / f"{name}.Dockerfile").read_text()
    assert f"USER {USER}:{USER}" in text
    assert f"useradd --uid {USER}" in text
    assert 'ENTRYPOINT ["/usr/bin/tini", "--", "webgym"]' in text


def test_volumes_that_ignore_fsgroup_are_given_to_the_pods_user_and_no_others_are() -> None:
    plain = {"metadata": {"name": "plain"}, "provisioner": "kubernetes.io/host-path"}
    default = {
        "metadata": {"name": "csi", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    }
    classes = root_owned_classes([plain, {**default, "provisioner": "ebs.csi.aws.com"}])
    assert classes == {"plain"}
    settings = dataclasses.replace(SETTINGS, root_owned_classes=classes)

    def owners(run: Run, settings: Settings) -> list[str]:
        made = [o for o in everything(run, settings) if o["kind"] in ("Pod", "StatefulSet")]
        specs = [o["spec"] if o["kind"] == "Pod" else o["spec"]["template"]["spec"] for o in made]
        return [c["name"] for spec in specs for c in spec.get("initContainers", ()) if c["name"] == "owner"]

    assert owners(make_run({}), settings) == []
    run = make_run({"storage": {"storageClassName": "plain"}})
    assert len(owners(run, settings)) == 2
    assert owners(run, dataclasses.replace(settings, volume_ownership="Never")) == []
    users = make_run({"storage": {"existingClaim": "mine"}})
    assert len(owners(users, dataclasses.replace(settings, volume_ownership="Always"))) == 2
