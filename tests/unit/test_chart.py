"""The chart: what it renders is valid for every supported server, asks for little, and refuses odd values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from operator_runs import VERSIONS, schema_errors
from ruamel.yaml import YAML

from webgym.crd import build_crd
from webgym_operator.settings import Settings

helm = pytest.importorskip("helm_python", reason="pip install helm-python-sdk")

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "webgym"
OURS = {"CustomResourceDefinition", "PodMonitor", "ServiceMonitor"}
"""Kinds that the schemas of Kubernetes itself do not hold."""

VALUES: dict[str, dict[str, Any]] = {
    "default": {},
    "everything": {
        "images": {
            "registry": "registry.example.com/",
            "operator": {"repository": "me/op", "digest": "sha256:" + "0" * 64},
            "worker": {"tag": 3},
            "redis": {"repository": "valkey/valkey", "tag": "8"},
            "pullSecrets": ["one", "two"],
        },
        "operator": {
            "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "high",
            "podLabels": {"team": "a"},
            "podAnnotations": {"note": "b"},
        },
        "serviceAccount": {"annotations": {"iam": "role"}},
        "metrics": {
            "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "serviceMonitor": {"enabled": True},
            "dashboard": {"enabled": True},
        },
        "extraObjects": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-x"}},
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-y'}",
        ],
        "runs": {
            "workerSeccompProfile": {"type": "Localhost", "localhostProfile": "chromium.json"},
            "privateNetworks": ["203.0.113.0/24"],
        },
        "fullnameOverride": "x" * 63,
    },
    "namespaced": {"watchNamespaces": ["lab", "prod"], "crds": {"enabled": False}},
    "old server": {
        "crds": {"celRules": "Never", "keep": False},
        "metrics": {"podMonitor": {"enabled": True}},
    },
    "somebody else's rights": {
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "mine"},
        "networkPolicy": {"enabled": False},
    },
}


def render(values: dict[str, Any], name: str = "demo") -> list[dict[str, Any]]:
    with helm.Chart.load(CHART) as chart:
        files = chart.render(values, name=name, namespace="webgym-system")
    texts = [text for file, text in sorted(files.items()) if not file.endswith(".txt")]
    documents = [document for text in texts for document in YAML(typ="safe").load_all(text)]
    return [document for document in documents if document]


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in objects if one["kind"] == kind]


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_every_object_is_valid_for_every_supported_server(values: dict[str, Any]) -> None:
    objects = render(values)
    assert len({(o["kind"], o["metadata"]["name"], o["metadata"].get("namespace")) for o in objects}) == len(
        objects
    )
    for version in VERSIONS:
        errors = [e for one in objects if one["kind"] not in OURS for e in schema_errors(one, version)]
        assert errors == []


@pytest.mark.parametrize("version", ["v1.20.2", "v1.25.0", "v1.37.0"])
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_lint(values: dict[str, Any], version: str) -> None:
    report = helm.lint(CHART, values, strict=True, kube_version=version)
    assert report["errors"] == []
    assert [m for m in report["messages"] if m["severity"] > 1] == []


def test_the_definition_is_the_one_of_the_models() -> None:
    for values, cel in (({}, True), ({"crds": {"celRules": "Never"}}, False)):
        (crd,) = of_kind(render(values), "CustomResourceDefinition")
        assert normal(crd["spec"]) == normal(build_crd(cel=cel)["spec"])
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert of_kind(render({"crds": {"enabled": False}}), "CustomResourceDefinition") == []


def normal(value: Any) -> Any:
    """Descriptions are wrapped in files; Helm and servers alike take numbers for floats."""
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, dict):
        items = value.items()
        return {
            k: " ".join(v.split()) if k == "description" and isinstance(v, str) else normal(v)
            for k, v in items
        }
    return [normal(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "values",
    [
        {"image": {}},
        {"images": {"pullPolicy": "Sometimes"}},
        {"images": {"operator": {"digest": "sha256:abc"}}},
        {"images": {"operator": {"repository": ""}}},
        {"watchNamespaces": "lab"},
        {"watchNamespaces": ["Lab"]},
        {"operator": {"resyncSeconds": 0}},
        {"operator": {"extraEnv": [{"value": "x"}]}},
        {"runs": {"workerSeccompProfile": {"type": "Localhost"}}},
        {"runs": {"privateNetworks": ["10.0.0.0"]}},
        {"metrics": {"podMonitor": {"interval": "often"}}},
    ],
    ids=lambda values: json.dumps(values)[:60],
)
def test_odd_values_are_refused(values: dict[str, Any]) -> None:
    with helm.Chart.load(CHART) as chart, pytest.raises(helm.HelmError):
        chart.validate_schema(values)


def test_the_operator_s_environment_is_one_that_it_accepts() -> None:
    for name, values in VALUES.items():
        (deployment,) = of_kind(render(values), "Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        settings = Settings.from_env({e["name"]: e.get("value", "here") for e in container["env"]})
        if name == "everything":
            assert settings.redis_image == "registry.example.com/valkey/valkey:8"
            assert container["image"] == "registry.example.com/me/op@sha256:" + "0" * 64
            assert settings.worker_image.endswith("webgym-worker:3")
            assert settings.worker_seccomp["localhostProfile"] == "chromium.json"
            assert settings.image_pull_secrets == ("one", "two")
        elif name == "default":
            assert settings.redis_image == container["image"] == "webgym-operator:0.1.0"
        elif name == "namespaced":
            assert settings.watch_namespaces == ("lab", "prod")


def test_rights_are_the_least() -> None:
    everywhere, namespaced = render({}), render(VALUES["namespaced"])
    rules = [r for role in of_kind(everywhere, "ClusterRole") for r in role["rules"]]
    assert not any("*" in (*r["apiGroups"], *r["resources"], *r["verbs"]) for r in rules)
    for rule in rules:
        if set(rule["resources"]) & {"roles", "rolebindings", "nodes", "namespaces", "pods/exec"}:
            raise AssertionError(rule)
    for role in of_kind(namespaced, "ClusterRole"):
        for rule in role["rules"]:
            assert rule["apiGroups"] in (["webgym.io"], ["apiextensions.k8s.io"], ["storage.k8s.io"])
            assert rule["apiGroups"] != ["storage.k8s.io"] or set(rule["verbs"]) <= {"get", "list"}
    assert {r["metadata"]["namespace"] for r in of_kind(namespaced, "Role")} == {"lab", "prod"}


def test_everything_that_the_operator_makes_it_has_the_right_to_make() -> None:
    from webgym_operator.resources import CHILD_KINDS

    allowed = {
        (group, resource, verb)
        for role in of_kind(render({}), "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    for version, plural in CHILD_KINDS.values():
        group = version.rpartition("/")[0]
        for verb in ("get", "list", "watch", "create", "patch", "delete"):
            assert (group, plural, verb) in allowed
    assert ("webgym.io", "webgymruns/status", "patch") in allowed


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_pods_of_the_chart_are_confined(values: dict[str, Any]) -> None:
    objects = render(values)
    specs = [d["spec"]["template"]["spec"] for d in of_kind(objects, "Deployment")]
    specs += [p["spec"] for p in of_kind(objects, "Pod")]
    assert len(specs) == 2
    for spec in specs:
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    names = {
        n for p in dashboard["panels"] for t in p["targets"] for n in re.findall(r"webgym_[a-z_]+", t["expr"])
    }
    assert "webgym_success" in names
    sources = [
        *ROOT.glob("learner/**/*.py"),
        *ROOT.glob("workers/webgym_workers/*.py"),
        *ROOT.glob("operator/**/*.py"),
    ]
    text = "".join(path.read_text() for path in sources)
    for name in names - {"webgym_io_role", "webgym_io_run"}:
        assert f'"{name.removeprefix("webgym_")}"' in text, name


def test_the_readme_is_current() -> None:
    import runpy

    module = runpy.run_path(str(ROOT / "tools" / "chart_readme.py"))
    text = (CHART / "README.md").read_text()
    assert text == module["rendered"](text), "run python tools/chart_readme.py"


def test_chart_and_package_have_one_version() -> None:
    chart = YAML(typ="safe").load(CHART / "Chart.yaml")
    assert f'version = "{chart["appVersion"]}"' in (ROOT / "pyproject.toml").read_text()
