"""The models: defaults of the contract, strictness, and that every field is described and bounded."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from webgym.errors import UsageError
from webgym.spec import (
    Browser,
    CpuSet,
    PasswordSource,
    Quantity,
    Redis,
    RunManifest,
    RunSpec,
    Stop,
    Workers,
    redact_urls,
)
from webgym.spec.base import SpecModel
from webgym.spec.fields import Shape
from webgym.spec.status import RunStatus


def models(model: type[SpecModel]) -> Iterator[type[SpecModel]]:
    yield model
    for annotation in Shape(model).keys().values():
        shape = Shape(annotation)
        for inner in (shape.model, Shape(shape.items).model if shape.items is not None else None):
            if inner is not None:
                yield from models(inner)


ALL_MODELS = sorted({*models(RunManifest), *models(RunStatus)}, key=lambda model: model.__name__)


def spec(**changes: Any) -> RunSpec:
    return RunSpec.model_validate({"task": {"name": "miniwob.click-button"}, **changes}, by_alias=True)


def test_the_design_s_top_level_keys_are_all_there() -> None:
    assert set(Shape(RunSpec).keys()) == {
        *(
            "task",
            "seed",
            "mode",
            "observation",
            "policy",
            "learner",
            "workers",
            "browser",
            "redis",
            "storage",
        ),
        *(
            "stop",
            "evaluation",
            "suspend",
            "activeDeadlineSeconds",
            "backoffLimit",
            "ttlSecondsAfterFinished",
        ),
        "managedBy",
    }


def test_reference_hyperparameters_are_the_defaults() -> None:
    run = spec()
    assert (run.learner.learning_rate, run.learner.discount, run.learner.batch_size) == (3e-4, 0.99, 128)
    assert run.learner.target_update_interval == 200
    assert (run.learner.n_step, run.learner.double, run.learner.dueling) == (3, True, True)
    assert run.workers.browsers_per_core == 1.5
    assert int(run.workers.memory_per_browser) == 2 * 2**30
    assert int(run.learner.replay.capacity_bytes) == 2**30
    assert (run.observation.nodes, run.observation.texts, run.observation.frame) == (20, 8, False)
    assert (run.policy.exploration.epsilon, run.policy.exploration.alpha) == (0.4, 7.0)
    assert run.stop.seconds == 600


@pytest.mark.parametrize("model", ALL_MODELS, ids=lambda model: model.__name__)
def test_every_model_and_field_is_described(model: type[SpecModel]) -> None:
    assert model.__doc__
    for name, field in model.model_fields.items():
        assert field.description, name
        assert field.description.rstrip().endswith((".", "!")), f"{name}: write whole sentences"


@pytest.mark.parametrize("model", ALL_MODELS, ids=lambda model: model.__name__)
def test_every_number_of_the_spec_is_bounded(model: type[SpecModel]) -> None:
    if model in set(models(RunStatus)):
        pytest.skip("status is measured, not given")
    for key, field in model.model_json_schema(by_alias=True)["properties"].items():
        if "x-kubernetes-int-or-string" in field:
            assert "x-webgym-bounds" in field, key
            continue
        options = field.get("anyOf", [field])
        for option in options:
            if option.get("type") in ("integer", "number"):
                assert {"minimum", "exclusiveMinimum"} & option.keys(), key
                assert {"maximum", "exclusiveMaximum"} & option.keys(), key


@pytest.mark.parametrize("model", ALL_MODELS, ids=lambda model: model.__name__)
def test_defaults_pass_their_own_bounds(model: type[SpecModel]) -> None:
    for name, field in model.model_fields.items():
        if field.is_required() or (default := field.get_default(call_default_factory=True)) is None:
            continue
        data = (
            default.model_dump(mode="json", by_alias=True, exclude_none=True)
            if hasattr(default, "rules")
            else default
        )
        errors: list[Any] = []
        try:
            model.model_validate({field.alias or name: data}, by_alias=True)
        except ValidationError as error:
            errors = [e for e in error.errors() if e["loc"][:1] == (field.alias,)]
        assert errors == [], name


def test_one_task_and_a_list_of_one_are_the_same_tasks() -> None:
    one, many = spec(), spec(task=[{"name": "miniwob.click-button"}])
    assert one.tasks == many.tasks
    assert len(one.tasks) == 1


def test_models_are_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        spec().seed = 3  # type: ignore[misc]


def test_null_is_absence_as_on_the_api_server() -> None:
    assert spec(seed=None, learner=None).seed == 0


@pytest.mark.parametrize("wrong", [True, "5", 1.5, []])
def test_whole_numbers_take_no_lookalikes(wrong: object) -> None:
    with pytest.raises(ValidationError):
        spec(seed=wrong)


def test_a_float_without_a_fraction_is_a_whole_number_as_on_the_api_server() -> None:
    assert spec(stop={"steps": 1e6}).stop.steps == 1_000_000


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("2Gi", 2 * 2**30),
        ("500m", 1),  # rounds up
        ("1.5Gi", 3 * 2**29),
        ("1e3", 1000),
        ("1E", 10**18),
        ("2Ei", 2**61),
        ("3k", 3000),
        (".5Ki", 512),
        ("7", 7),
    ],
)
def test_quantities_mean_what_kubernetes_means(text: str, units: int) -> None:
    assert int(Quantity(text)) == units
    assert str(Quantity(text)) == text


@pytest.mark.parametrize(
    "text", ["", "Gi", "-1Gi", "+1", "1 Gi", "1gi", "1KiB", "nan", "1e", "1.2.3", "9Ei", "1e99", "٣"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"quantity|2\^63"):
        Quantity(text)


@given(st.integers(0, 2**40), st.sampled_from(["", "k", "M", "Ki", "Mi"]))
def test_quantities_compare_by_amount_not_by_spelling(number: int, suffix: str) -> None:
    factor = {"": 1, "k": 1000, "M": 10**6, "Ki": 1024, "Mi": 2**20}[suffix]
    quantity = Quantity(f"{number}{suffix}")
    plain = Quantity(number * factor)
    assert quantity == plain
    assert hash(quantity) == hash(plain)
    assert quantity < Quantity(number * factor + 1)
    assert int(quantity) == number * factor


def test_a_quantity_without_its_suffix_is_caught_by_the_bounds() -> None:
    with pytest.raises(ValidationError, match="from 64Mi to 256Gi, not 2"):
        spec(workers={"memoryPerBrowser": 2})


def test_a_fractional_quantity_needs_quotes_as_on_the_api_server() -> None:
    with pytest.raises(ValidationError, match=r'quotes: "0.5"'):
        spec(workers={"resources": {"requests": {"cpu": 0.5}}})


def test_cpu_affinity_keeps_its_groups() -> None:
    cpus = spec(workers={"cpuAffinity": "4-7,0-1,9"}).workers.cpu_affinity
    assert cpus is not None
    assert list(cpus) == [0, 1, 4, 5, 6, 7, 9]
    assert cpus.groups == ((4, 5, 6, 7), (0, 1), (9,))
    assert 5 in cpus
    assert len(cpus) == 7


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "0,0", "0-4,4", "1,,2", "0-9999", "1;2", "1 2"])
def test_wrong_core_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"core|range"):
        CpuSet(text)


@given(st.sets(st.integers(0, 300), min_size=1, max_size=20))
def test_core_lists_hold_what_was_written(cores: set[int]) -> None:
    assert set(CpuSet(",".join(map(str, cores)))) == cores


@pytest.mark.parametrize(
    "url",
    [
        "redis://:secret9@h",
        "rediss://u:secret9@h:1/0",
        "redis://u:sec/ret9@h",
        "redis://secret9@h",
        "redis://h?password=secret9",
    ],
)
def test_a_password_in_the_redis_url_is_refused_and_never_shown(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Redis.model_validate({"url": url})
    message = caught.value.errors(include_input=False, include_url=False)[0]["msg"]
    assert "ret9" not in message
    assert "passwordFrom" in message or "username" in message or "other keys" in message


@pytest.mark.parametrize(
    "url", ["http://h", "redis://", "redis:h", "redis://h:99999", "redis://h:0", "h:6379", "redis://h/x"]
)
def test_what_is_no_redis_url_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        Redis.model_validate({"url": url})


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "redis://10.0.0.1:6379/3",
        "rediss://r.example.com:6380",
        "unix:///run/r.sock",
        "redis://[::1]:6379",
    ],
)
def test_redis_urls(url: str) -> None:
    assert Redis(url=url).url == url


def test_a_literal_secret_in_the_environment_is_refused() -> None:
    for name in ("HF_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "TOKEN"):
        with pytest.raises(ValidationError, match="secretKeyRef"):
            spec(workers={"env": [{"name": name, "value": "x"}]})
    kept = spec(workers={"env": [{"name": "TOKENIZERS_PARALLELISM", "value": "false"}]})
    assert kept.workers.env[0].value == "false"


@pytest.mark.parametrize("params", [{"url": "http://u:pw@h/"}, {"a": [{"b": "see https://u:pw@h"}]}])
def test_a_password_inside_task_params_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="password inside a URL"):
        spec(task={"name": "x", "params": params})


def test_passwords_are_read_from_where_they_are(tmp_path: Any) -> None:
    file = tmp_path / "password"
    file.write_text("from file\n")
    assert PasswordSource(file=str(file)).read({}) == "from file"
    assert PasswordSource(env="MINE").read({"MINE": "from env"}) == "from env"
    reference = PasswordSource.model_validate({"secretKeyRef": {"name": "redis", "key": "password"}})
    assert reference.read({"WEBGYM_REDIS_PASSWORD": "mounted"}) == "mounted"


def test_a_password_that_is_not_there_names_its_source(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match="MINE is not set"):
        PasswordSource(env="MINE").read({})
    with pytest.raises(UsageError, match="No such file"):
        PasswordSource(file=str(tmp_path / "none")).read({})
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(UsageError, match="is empty"):
        PasswordSource(file=str(tmp_path / "empty")).read({})


def test_urls_are_redacted() -> None:
    assert redact_urls("at redis://u:pw@h/0 and http://:x@y") == "at redis://u:***@h/0 and http://:***@y"
    assert redact_urls("redis://u@h and 10:30 a@b") == "redis://u@h and 10:30 a@b"


@pytest.mark.parametrize("name", ["", "A", "a_b", "a.b", "-a", "a-", "a" * 51, "a\n", "ä"])
def test_names_that_kubernetes_refuses_are_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        RunManifest.model_validate({"metadata": {"name": name}, "spec": {"task": {"name": "x"}}})


def test_what_a_server_adds_is_dropped() -> None:
    manifest = RunManifest.model_validate(
        {
            "metadata": {
                "name": "a",
                "uid": "1",
                "resourceVersion": "3",
                "managedFields": [],
                "generation": 2,
            },
            "spec": {"task": {"name": "x"}},
            "status": {"steps": 3},
        }
    )
    assert manifest.metadata.name == "a"


def test_stop_by_success_alone_is_no_limit() -> None:
    with pytest.raises(ValidationError, match="steps or seconds"):
        Stop(success=0.9)


@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Vienna", "America/Argentina/Ushuaia", "Etc/GMT+5", "EST5EDT"]
)
def test_time_zones_are_those_of_the_database(zone: str) -> None:
    assert Browser(timezone=zone).timezone == zone


def test_a_machine_without_time_zones_takes_them_on_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(key: str) -> None:
        raise zoneinfo.ZoneInfoNotFoundError(key)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", missing)
    monkeypatch.setattr("webgym.spec.browser._time_zones", frozenset)
    assert Browser(timezone="Mars/X").timezone == "Mars/X"


@pytest.mark.parametrize(
    "tag", ["en", "en-US", "es-419", "zh-Hant-TW", "de-CH-1996", "sl-rozaj", "zh-yue", "yue-HK"]
)
def test_locales_of_every_shape(tag: str) -> None:
    assert Browser(locale=tag).locale == tag


@pytest.mark.parametrize(
    "image",
    [
        "webgym",
        "webgym:latest",
        "ghcr.io/owner/web-gym:1.0.0-rc.1",
        "localhost:5000/a__b/c",
        "r.example.com/webgym@sha256:" + "0123456789abcdef" * 4,
    ],
)
def test_images_of_every_shape(image: str) -> None:
    assert Workers(image=image).image == image
