"""Examples for clusters are accepted, and those of outside autoscalers scale the run beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from operator_runs import VERSIONS, schema_errors
from ruamel.yaml import YAML

from webgym.spec import KIND, RunManifest

FOLDER = Path(__file__).parents[2] / "examples" / "kubernetes"
PATHS = sorted(FOLDER.glob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return list(YAML(typ="safe").load_all(path.read_text()))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_runs_are_valid_and_so_is_what_the_server_knows(path: Path) -> None:
    found = documents(path)
    assert [one["kind"] for one in found].count(KIND) == 1
    for one in found:
        if one["kind"] == KIND:
            RunManifest.model_validate(one, by_alias=True, by_name=False)
        elif not one["apiVersion"].startswith("keda.sh/"):
            assert [error for version in VERSIONS for error in schema_errors(one, version)] == []


@pytest.mark.parametrize("name", ["hpa", "keda"])
def test_an_outside_autoscaler_scales_the_run_within_its_bounds(name: str) -> None:
    run, scaler = documents(FOLDER / f"{name}.yaml")
    target, autoscaling = scaler["spec"]["scaleTargetRef"], run["spec"]["workers"]["autoscaling"]
    assert target == {"apiVersion": run["apiVersion"], "kind": KIND, "name": run["metadata"]["name"]}
    assert autoscaling["mode"] == "External"
    spec = scaler["spec"]
    least, most = ("minReplicas", "maxReplicas") if name == "hpa" else ("minReplicaCount", "maxReplicaCount")
    assert (spec[least], spec[most]) == (autoscaling["min"], autoscaling["max"])


def test_keda_compares_the_learner_s_ratio_itself() -> None:
    """AverageValue would divide it by the number of workers, of which it is no sum."""
    run, scaler = documents(FOLDER / "keda.yaml")
    (trigger,) = scaler["spec"]["triggers"]
    assert trigger["metricType"] == "Value"
    ratio = RunManifest.model_validate(run, by_alias=True, by_name=False).spec.learner.replay_ratio
    assert ratio.min < float(trigger["metadata"]["threshold"]) < ratio.max
    assert f'"{run["metadata"]["name"]}"' in trigger["metadata"]["query"]
