"""``--set path=value``."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webgym.manifest import InvalidManifest, parse_manifest
from webgym.spec.fields import format_path
from webgym.spec.overrides import parse_path

HEAD = "apiVersion: webgym.io/v1alpha1\nkind: WebGymRun\nmetadata:\n  name: a\n"
ONE = HEAD + "spec:\n  task:\n    name: one\n"
TWO = HEAD + "spec:\n  task:\n  - name: one\n  - name: two\n"


def get(text: str, *overrides: str) -> Any:
    return parse_manifest(text, overrides).spec


def test_the_usual_ones() -> None:
    spec = get(
        ONE,
        "task.name=miniwob.click-link",
        "spec.learner.batchSize=64",
        "stop.seconds=1e2",
        "observation.frame=true",
    )
    assert spec.tasks[0].name == "miniwob.click-link"
    assert (spec.learner.batch_size, spec.stop.seconds, spec.observation.frame) == (64, 100, True)


def test_later_ones_win_and_empty_ones_unset() -> None:
    assert get(ONE, "seed=1", "seed=2").seed == 2
    assert get(ONE + "  seed: 5\n", "seed=").seed == 0
    assert get(ONE + "  stop: {seconds: 9}\n", "stop=null").stop.seconds == 600


def test_the_name_of_the_run() -> None:
    assert parse_manifest(ONE, ["metadata.name=b"]).metadata.name == "b"


def test_both_forms_of_task_take_both_paths() -> None:
    assert get(ONE, "task[0].weight=2").tasks[0].weight == 2
    assert get(HEAD + "spec:\n  task:\n  - name: one\n", "task.name=x").tasks[0].name == "x"
    assert [task.weight for task in get(TWO, "task[1].weight=3").tasks] == [1, 3]
    assert [task.name for task in get(ONE, "task[1].name=two").tasks] == ["one", "two"]
    assert [task.name for task in get(ONE, "task=[{name: p}, {name: q}]").tasks] == ["p", "q"]


def test_keys_with_dots_and_lists_that_grow() -> None:
    spec = get(
        ONE,
        'workers.nodeSelector["kubernetes.io/arch"]=arm64',
        "workers.env[0].name=A",
        "workers.env[0].value='1'",
        "task.params.deep.er[0]=7",
    )
    assert spec.workers.node_selector == {"kubernetes.io/arch": "arm64"}
    assert (spec.workers.env[0].name, spec.workers.env[0].value) == ("A", "1")
    assert spec.tasks[0].params == {"deep": {"er": [7]}}


@pytest.mark.parametrize(
    ("text", "option", "expected"),
    [
        (
            ONE,
            "lerner.batchSize=1",
            "--set lerner.batchSize: spec.lerner: there is no such field; did you mean learner?",
        ),
        (
            ONE,
            "learner.batchsize=1",
            "spec.learner.batchsize: there is no such field; did you mean batchSize?",
        ),
        (ONE, "batchSize=1", "did you mean spec.learner.batchSize?"),
        (ONE, "learner.batch_size=1", "did you mean batchSize?"),
        (ONE, "seed.x=1", "--set seed.x: spec.seed.x: there is nothing below spec.seed"),
        (ONE, "seed[0]=1", "--set seed[0]: spec.seed: is no list and takes no [index]"),
        (
            ONE,
            "task[2].name=x",
            "--set task[2].name: spec.task: the list has 1 entries; the next index is [1]",
        ),
        (TWO, "task.name=x", "--set task.name: spec.task: this manifest lists 2 tasks; write task[0].name"),
        (ONE, "seed", "--set seed: has no value; write path=value"),
        (ONE, "=1", "the path is empty"),
        (ONE, ".seed=1", "is no path such as learner.batchSize"),
        (ONE, "learner..nStep=1", "is no path such as learner.batchSize"),
        (ONE, "learner[nStep]=1", "is no path such as learner.batchSize"),
        (ONE, "task[99999999]=1", "is no path such as learner.batchSize"),
        (
            ONE,
            "learner.batchSize=0",
            "--set learner.batchSize: spec.learner.batchSize: must be at least 1, not 0",
        ),
        (ONE, "learner.nStep={a", "--set learner.nStep: is not YAML"),
        (
            ONE + "  learner: 3\n",
            "learner.nStep=2",
            "--set learner.nStep: spec.learner: is no map in this manifest",
        ),
        (ONE, "kind=Pod", "--set kind: kind: expected WebGymRun, not 'Pod'"),
    ],
)
def test_wrong_ones_name_the_option_and_the_mend(text: str, option: str, expected: str) -> None:
    with pytest.raises(InvalidManifest) as caught:
        parse_manifest(text, [option])
    assert expected in str(caught.value.problems[-1])
    assert "\n" not in str(caught.value)


def test_an_override_mends_what_the_file_has_wrong() -> None:
    assert get(ONE + "  seed: -1\n", "seed=3").seed == 3


keys = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,8}", fullmatch=True) | st.from_regex(
    r"[a-z0-9./ -]{1,12}", fullmatch=True
)


@given(st.lists(keys | st.integers(0, 99_999), max_size=6))
def test_paths_read_back_as_they_are_shown(parts: list[str | int]) -> None:
    path = ("spec", *parts)
    assert parse_path(format_path(path)) == path


@given(st.text(max_size=30))
def test_no_text_makes_the_path_parser_fail_otherwise(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse_path(text)[0] in ("spec", "metadata", "apiVersion", "kind")


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=30))
def test_no_option_makes_parsing_fail_otherwise(text: str) -> None:
    with contextlib.suppress(InvalidManifest):
        parse_manifest(ONE, [f"task.params.x={text}"])
