"""Each rule that spans fields, in both of its languages: what Python refuses, CEL refuses, and the other way round."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from webgym.crd import object_schema
from webgym.spec import (
    Autoscaling,
    Browser,
    EnvSource,
    EnvVar,
    Learner,
    PasswordSource,
    Redis,
    RedisTls,
    ReplayRatio,
    Resources,
    Rule,
    RunSpec,
    SpecModel,
    Stop,
    Storage,
    Toleration,
    Workers,
)

TASK = {"name": "miniwob.click-button"}
REF = {"name": "s", "key": "k"}
CERTS = {"certFile": "c", "keyFile": "k"}

VALID: list[tuple[type[SpecModel], dict[str, Any]]] = [
    (RunSpec, {"task": TASK}),
    (RunSpec, {"task": [TASK, {**TASK, "params": {"a": 1}}], "stop": {"seconds": 5, "success": 0.9}}),
    (RunSpec, {"task": TASK, "mode": "Lockstep", "workers": {"maxBrowsers": 4}}),
    (RunSpec, {"task": TASK, "mode": "Synchronous", "workers": {"maxBrowsers": 1, "replicas": 1}}),
    (RunSpec, {"task": TASK, "activeDeadlineSeconds": 100, "stop": {"seconds": 100}}),
    (RunSpec, {"task": TASK, "activeDeadlineSeconds": 1, "stop": {"steps": 100}}),
    (Learner, {"batchSize": 300, "replicas": 3}),
    (Learner, {"precision": "fp16", "device": "cuda"}),
    (ReplayRatio, {"min": 0.0, "max": 0.5}),
    (Workers, {"replicas": 3, "autoscaling": {"mode": "External"}}),
    (Workers, {"replicas": 0, "autoscaling": {"mode": "Learner", "min": 2}}),
    (Autoscaling, {"min": 3, "max": 3}),
    (Browser, {"egress": "TaskSites", "allowedSites": ["*.example.com"]}),
    (Browser, {"endpoint": "ws://h:9222/devtools/browser/a-b", "frames": "Screenshot"}),
    (Redis, {}),
    (Redis, {"url": "rediss://h", "username": "u", "passwordFrom": {"env": "P"}, "tls": CERTS}),
    (RedisTls, CERTS),
    (RedisTls, {"secretName": "s", "serverName": "n"}),
    (PasswordSource, {"secretKeyRef": REF}),
    (EnvVar, {"name": "A", "value": ""}),
    (EnvVar, {"name": "MY_TOKEN", "valueFrom": {"configMapKeyRef": REF}}),
    (Toleration, {"operator": "Exists"}),
    (Toleration, {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 3}),
    (Resources, {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": "1024Mi"}}),
    (Storage, {"existingClaim": "c"}),
    (Stop, {"steps": 1}),
]

BROKEN: list[tuple[type[SpecModel], dict[str, Any], str]] = [
    (RunSpec, {"task": TASK, "mode": "Lockstep", "workers": {"replicas": 2}}, "single worker"),
    (
        RunSpec,
        {"task": TASK, "mode": "Synchronous", "workers": {"autoscaling": {"mode": "Learner"}}},
        "cannot autoscale",
    ),
    (RunSpec, {"task": TASK, "mode": "Synchronous", "workers": {"maxBrowsers": 2}}, "one browser"),
    (RunSpec, {"task": TASK, "mode": "Synchronous", "learner": {"replicas": 2}}, "one learner"),
    (
        RunSpec,
        {"task": TASK, "stop": {"seconds": 5, "success": 0.9}, "evaluation": {"validationShare": 0.0}},
        "validationShare above 0",
    ),
    (RunSpec, {"task": TASK, "activeDeadlineSeconds": 99, "stop": {"seconds": 100}}, "raise it"),
    (RunSpec, {"task": [TASK, TASK]}, "listed once"),
    (Learner, {"batchSize": 301}, "minTransitions must be at least"),
    (Learner, {"replicas": 3}, "multiple of replicas"),
    (Learner, {"precision": "fp16", "device": "cpu"}, "needs a GPU"),
    (Learner, {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}, "named once"),
    (ReplayRatio, {"min": 2.0}, "min may not exceed max"),
    (Workers, {"replicas": 11, "autoscaling": {"mode": "External"}}, "between autoscaling.min and max"),
    (Workers, {"autoscaling": {"mode": "External", "min": 2}}, "between autoscaling.min and max"),
    (Workers, {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}, "named once"),
    (Autoscaling, {"min": 11}, "min may not exceed max"),
    (Browser, {"allowedSites": ["example.com"]}, "TaskSites only"),
    (Browser, {"endpoint": "ws://browser:9222", "egress": "Offline"}, "leave egress out"),
    (Browser, {"endpoint": "http://h:9222", "executable": "/bin/chromium"}, "no browser is started"),
    (Browser, {"endpoint": "http://h:9222", "frames": "SharedMemory"}, "browsers of this machine"),
    (Redis, {"passwordFrom": {"env": "P"}}, "give its url too"),
    (Redis, {"tls": {}}, "give its url too"),
    (Redis, {"url": "redis://h", "username": "u"}, "username needs passwordFrom"),
    (Redis, {"url": "redis://h", "tls": {}}, "starts with rediss://"),
    (RedisTls, {"certFile": "c"}, "belong together"),
    (RedisTls, {"secretName": "s", "caFile": "c"}, "one or the other"),
    (PasswordSource, {}, "exactly one of env, file and secretKeyRef"),
    (PasswordSource, {"env": "A", "file": "b"}, "exactly one of env, file and secretKeyRef"),
    (EnvSource, {}, "exactly one of secretKeyRef and configMapKeyRef"),
    (
        EnvSource,
        {"secretKeyRef": REF, "configMapKeyRef": REF},
        "exactly one of secretKeyRef and configMapKeyRef",
    ),
    (EnvVar, {"name": "A"}, "exactly one of value and valueFrom"),
    (
        EnvVar,
        {"name": "A", "value": "", "valueFrom": {"secretKeyRef": REF}},
        "exactly one of value and valueFrom",
    ),
    (EnvVar, {"name": "WEBGYM_OUT", "value": "x"}, "names that start with WEBGYM_"),
    (EnvVar, {"name": "MY_API_KEY", "value": "x"}, "looks like a secret"),
    (EnvVar, {"name": "PASSWORD", "value": "x"}, "looks like a secret"),
    (Toleration, {"operator": "Exists", "value": "x"}, "no value to compare"),
    (Toleration, {"value": "x"}, "takes operator: Exists"),
    (Toleration, {"key": "a", "tolerationSeconds": 3}, "tolerationSeconds needs"),
    (Resources, {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}, "may not exceed the limit"),
    (Storage, {"existingClaim": "c", "storageClassName": "s"}, "leave it out with existingClaim"),
    (Stop, {"success": 0.5}, "give steps or seconds"),
]


def broken_in_python(model: type[SpecModel], data: dict[str, Any]) -> list[Rule]:
    found: list[Any] = []
    try:
        model.model_validate(data, by_alias=True)
    except ValidationError as error:
        found = list(error.errors())
    assert {e["type"] for e in found} <= {"rules"}, found
    return [rule for e in found for rule in e["ctx"]["rules"]]


def with_defaults(value: Any, schema: dict[str, Any]) -> Any:
    """What the API server makes of an object before it evaluates CEL: defaults filled in, from the outside in."""
    if isinstance(value, dict):
        filled = dict(value)
        for key, inner in schema.get("properties", {}).items():
            if key not in filled and "default" in inner:
                filled[key] = inner["default"]
            if key in filled:
                filled[key] = with_defaults(filled[key], inner)
        return filled
    if isinstance(value, list):
        return [with_defaults(inner, schema.get("items", {})) for inner in value]
    if schema.get("type") == "number" and isinstance(value, int):
        return float(value)  # the server hands numbers to CEL as doubles
    return value


def broken_in_cel(model: type[SpecModel], data: dict[str, Any]) -> list[str]:
    celpy = pytest.importorskip("celpy", reason="pip install cel-python")
    schema = object_schema(model)
    environment = celpy.Environment()
    activation = {"self": celpy.json_to_cel(with_defaults(data, schema))}
    found = []
    for validation in schema.get("x-kubernetes-validations", ()):
        program = environment.program(environment.compile(validation["rule"]))
        if not program.evaluate(activation):
            found.append(validation["message"])
    return found


@pytest.mark.parametrize(("model", "data"), VALID, ids=lambda value: getattr(value, "__name__", None))
def test_valid_combinations_pass_in_both_languages(model: type[SpecModel], data: dict[str, Any]) -> None:
    assert broken_in_python(model, data) == []
    assert broken_in_cel(model, data) == []


@pytest.mark.parametrize(("model", "data", "message"), BROKEN)
def test_impossible_combinations_break_one_rule(
    model: type[SpecModel], data: dict[str, Any], message: str
) -> None:
    (rule,) = broken_in_python(model, data)
    assert message in rule.message


@pytest.mark.parametrize(("model", "data", "message"), BROKEN)
def test_cel_breaks_the_same_rule(model: type[SpecModel], data: dict[str, Any], message: str) -> None:
    (rule,) = broken_in_python(model, data)
    assert broken_in_cel(model, data) == ([rule.message] if rule.cel else [])


def test_every_rule_is_broken_by_a_case() -> None:
    checked = {
        (model.__name__, rule.message)
        for model in {model for model, _, _ in BROKEN}
        for rule in model.rules
        if rule.check is not None
    }
    seen = {
        (model.__name__, rule.message) for model, data, _ in BROKEN for rule in broken_in_python(model, data)
    }
    assert checked == seen


def test_several_broken_rules_are_all_told() -> None:
    data = {"task": TASK, "mode": "Synchronous", "workers": {"replicas": 2}, "learner": {"replicas": 2}}
    assert len(broken_in_python(RunSpec, data)) == 2
