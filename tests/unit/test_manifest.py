"""Manifests: every mistake is one clear line with its place, and what is written out reads back the same."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webgym.errors import ExitCode, ManifestError, TaskError
from webgym.manifest import InvalidManifest, dump_manifest, load_manifest, parse_manifest
from webgym.spec import RunManifest, TaskSpec
from webgym.spec.source import parse
from webgym.spec.yaml_text import dump_yaml

HEAD = "apiVersion: webgym.io/v1alpha1\nkind: WebGymRun\nmetadata:\n  name: a\n"
GOOD = HEAD + "spec:\n  task:\n    name: miniwob.click-button\n"


def problems(text: str, *overrides: str) -> list[str]:
    with pytest.raises(InvalidManifest) as caught:
        parse_manifest(text, overrides, name="run.yaml")
    assert caught.value.exit_code == ExitCode.USAGE
    assert "\n" not in str(caught.value)
    return [str(problem) for problem in caught.value.problems]


def problem(text: str, *overrides: str) -> str:
    (line,) = problems(text, *overrides)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        (
            "  learner: {batchsize: 3}",
            "run.yaml:8: spec.learner.batchsize: unknown key; did you mean batchSize?",
        ),
        (
            "  learner: {batch_size: 3}",
            "run.yaml:8: spec.learner.batch_size: unknown key; did you mean batchSize?",
        ),
        ("  batchSize: 3", "run.yaml:8: spec.batchSize: unknown key; did you mean spec.learner.batchSize?"),
        ("  lerner: {}", "run.yaml:8: spec.lerner: unknown key; did you mean learner?"),
        ("  qqqq: {}", "run.yaml:8: spec.qqqq: unknown key; known here: task, seed, mode"),
        ("  seed: true", "run.yaml:8: spec.seed: expected a whole number, not true"),
        ("  seed: 1.5", "run.yaml:8: spec.seed: expected a whole number, not 1.5"),
        ("  seed: '1'", "run.yaml:8: spec.seed: expected a whole number, not '1'"),
        ("  seed: -1", "run.yaml:8: spec.seed: must be at least 0, not -1"),
        ("  seed: 99999999999999999999", "run.yaml:8: spec.seed: the number does not fit into 64 bits"),
        ("  seed: " + "9" * 5000, "run.yaml:8: spec.seed: the number does not fit into 64 bits"),
        ("  seed: 010", "run.yaml:8: spec.seed: a number with leading zeros is ambiguous"),
        ("  suspend: 1", "run.yaml:8: spec.suspend: expected true or false, not 1"),
        ("  suspend: yes", "run.yaml:8: spec.suspend: expected true or false, not 'yes'"),
        ("  learner: [1]", "run.yaml:8: spec.learner: expected a map, not a list"),
        ("  learner: dqn", "run.yaml:8: spec.learner: expected a map, not 'dqn'"),
        ("  learner: {algorithm: PPO}", "run.yaml:8: spec.learner.algorithm: must be DQN, not 'PPO'"),
        (
            "  mode: lockstep",
            "must be Asynchronous, Lockstep or Synchronous, not 'lockstep'; did you mean Lockstep?",
        ),
        ("  learner: {learningRate: .nan}", "spec.learner.learningRate: expected a finite number"),
        ("  learner: {learningRate: -.inf}", "spec.learner.learningRate: expected a finite number"),
        ("  learner: {learningRate: 0}", "spec.learner.learningRate: must be above 0, not 0"),
        ("  learner: {learningRate: fast}", "spec.learner.learningRate: expected a number, not 'fast'"),
        (
            "  learner:\n    replay:\n      alpha: 2",
            "run.yaml:10: spec.learner.replay.alpha: must be at most 1",
        ),
        ("  workers: {cpuAffinity: 0-}", "spec.workers.cpuAffinity: '0-' is no list of cores"),
        (
            "  workers: {memoryPerBrowser: 2GB}",
            "spec.workers.memoryPerBrowser: '2GB' is no quantity such as 2Gi",
        ),
        (
            "  workers: {nodeSelector: {a: true}}",
            "spec.workers.nodeSelector.a: expected a text, not true; put it in q",
        ),
        ("  workers: {env: {A: b}}", "spec.workers.env: expected a list, not a map"),
        (
            "  workers:\n    env:\n    - name: A\n      valu: b",
            "run.yaml:11: spec.workers.env[0].valu: unknown key; did",
        ),
        (
            "  workers: {resources: {limits: {cpu: 0.5}}}",
            "spec.workers.resources.limits.cpu: a fraction needs quotes",
        ),
        (
            "  browser: {allowedSites: [x.org]}",
            "spec.browser.allowedSites: allowedSites counts with egress: TaskSites",
        ),
        (
            "  browser: {timezone: Mars/X}",
            "timezone: there is no time zone 'Mars/X'; give an IANA name such as",
        ),
        ("  browser: {timezone: europe/viena}", "no time zone 'europe/viena'; did you mean Europe/Vienna?"),
        ("  browser: {timezone: localtime}", "no time zone 'localtime'"),
        ("  browser: {timezone: America}", "no time zone 'America'"),
        (
            "  browser: {locale: en_US}",
            "locale: must be a language tag such as en, en-US, es-419 or zh-Hant-TW",
        ),
        ("  browser: {locale: en-USA}", "locale: must be a language tag"),
        (
            r'  browser: {executable: "a\0b"}',
            r"executable: must be text on one line, without control characters",
        ),
        (
            "  redis: {url: 'rediss://h', tls: {serverName: a b}}",
            "serverName: must be a host name or an address",
        ),
        ("  redis: {url: 'rediss://h', tls: {secretName: A_b}}", "secretName: must be lower-case letters"),
        (r"""  redis: {url: "unix:///a\x01b"}""", "url: must look like redis://host:6379/0"),
        ("  workers: {image: My Image}", "image: must be a container image such as ghcr.io/owner/name:1.0"),
        (
            "  workers: {nodeSelector: {a b: c}}",
            """nodeSelector["a b"]: must be a name such as app or""",
        ),
        ("  workers: {nodeSelector: {a: b c}}", "nodeSelector.a: must be letters, digits, hyphens, dots and"),
        (
            "  workers: {tolerations: [{key: x/y/z, operator: Exists}]}",
            "tolerations[0].key: must be a name such",
        ),
        ("  workers: {tolerations: [{key: x, value: '-'}]}", "tolerations[0].value: must be letters, digits"),
        (
            r'  workers: {env: [{name: A, value: "a\0b"}]}',
            "env[0].value: must be text without the character zero",
        ),
        ("  stop: {}", "run.yaml:8: spec.stop: give steps or seconds"),
        (
            "  mode: Synchronous\n  workers:\n    replicas: 2",
            "run.yaml:10: spec.workers.replicas: mode Lockstep and",
        ),
        ("  seed: 1\n  seed: 2", "run.yaml:9: spec.seed: is given twice, on line 8 too; keep one"),
        ("  1: 2", "run.yaml:8: spec: the key '1' is not a text; put it in quotes"),
        ("  ? [a]\n  : 2", "run.yaml:8: spec: a key must be a text, not a map or a list"),
        (
            "  seed: !!python/name:os.system x",
            "has the tag !!python/name:os.system, which a manifest cannot hold",
        ),
        (
            "  redis: {url: 'redis://:pw@h'}",
            "spec.redis.url: holds a password; take it out and name its source in redis",
        ),
        (
            "  redis: {password: pw}",
            "spec.redis.password: unknown key; a manifest holds no password: name its source",
        ),
    ],
)
def test_a_mistake_is_one_line_with_place_path_and_mend(added: str, expected: str) -> None:
    lines = problems(GOOD + added + "\n")
    assert any(expected in line for line in lines), lines
    assert all(line.startswith("run.yaml:") for line in lines)


@pytest.mark.parametrize(
    "written", ["passwordFrom: hunter2", "url: 'redis://u:hunter2@h'", "password: hunter2", "url: [hunter2]"]
)
def test_what_may_be_a_password_is_never_shown(written: str) -> None:
    assert "hunter2" not in problem(GOOD + f"  redis: {{{written}}}\n")
    assert "hunter2" not in problem(GOOD, "redis.passwordFrom=hunter2")
    assert "hunter2" not in problem(GOOD, "redis.url=redis://:hunter2@h")
    assert "hunter2" not in problem(GOOD, "redis.password=hunter2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "run.yaml: is empty"),
        ("# only a comment\n", "run.yaml: is empty"),
        ("---\n", "run.yaml: expected a map with apiVersion, kind, metadata and spec, not nothing"),
        ("just words", "run.yaml: expected a map with apiVersion, kind, metadata and spec, not 'just words'"),
        ("- a\n- b\n", "run.yaml: expected a map with apiVersion, kind, metadata and spec, not a list"),
        ("a: [1, 2", "run.yaml:1: is not YAML"),
        ("a: b: c", "run.yaml:1: is not YAML"),
        ("a:\n\t- b", "run.yaml:2: is not YAML"),
        ("a: *nowhere", "run.yaml:1: is not YAML"),
        (GOOD + "---\n" + GOOD, "run.yaml:8: holds several documents (---); write one run per file"),
        (
            GOOD.replace("v1alpha1", "v2"),
            "run.yaml:1: apiVersion: expected webgym.io/v1alpha1, not 'webgym.io/v2'",
        ),
        (GOOD.replace("WebGymRun", "Pod"), "run.yaml:2: kind: expected WebGymRun, not 'Pod'"),
        (GOOD.replace("kind: WebGymRun\n", ""), "run.yaml: kind: is missing; write kind: WebGymRun"),
        (HEAD, "run.yaml: spec: is missing"),
        (HEAD + "spec:\n", "run.yaml:5: spec: is missing"),
        (HEAD + "spec: {}\n", "run.yaml:5: spec.task: is missing"),
        (HEAD + "spec:\n  task: {}\n", "run.yaml:6: spec.task.name: is missing"),
        (HEAD + "spec:\n  task: []\n", "run.yaml:6: spec.task: must not be empty"),
        (HEAD + "spec:\n  task: miniwob.x\n", "run.yaml:6: spec.task: expected a map, not 'miniwob.x'"),
        (HEAD + "spec:\n  task:\n  - name: a\n  - weight: 2\n", "run.yaml:8: spec.task[1].name: is missing"),
        (
            GOOD.replace("name: a", "name: A_b"),
            "run.yaml:4: metadata.name: must be lower-case letters, digits",
        ),
        (
            GOOD.replace("name: a", "name: " + "a" * 51),
            "run.yaml:4: metadata.name: is longer than 50 characters",
        ),
        ("x: " + "[" * 1000 + "]" * 1000, "run.yaml: is nested deeper than 64 levels"),
        ("a: &a [*a]", "run.yaml: is nested deeper than 64 levels, or an alias holds itself"),
        ("a: \x07", "run.yaml: is not YAML"),
    ],
)
def test_what_is_no_manifest(text: str, expected: str) -> None:
    assert problem(text).startswith(expected)


def test_all_problems_are_told_in_the_order_of_the_file() -> None:
    text = GOOD + "  seed: -1\n  seed: 3\n  nope: 1\n  learner:\n    batchSize: 0\n"
    found = problems(text)
    assert [int(line.split(":")[1]) for line in found] == [9, 10, 12]
    with pytest.raises(InvalidManifest, match=r"and 2 more: `webgym validate` lists them all"):
        parse_manifest(text)


def test_a_bomb_of_aliases_is_refused_in_a_moment() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
    started = time.monotonic()
    assert "values once its aliases are expanded" in problem(bomb)
    assert time.monotonic() - started < 5


def test_aliases_and_merges_work_as_in_kubectl() -> None:
    text = HEAD + "spec:\n  task:\n  - &x {name: a, weight: 2}\n  - {<<: *x, name: b}\n"
    tasks = parse_manifest(text).spec.tasks
    assert [(task.name, task.weight) for task in tasks] == [("a", 2.0), ("b", 2.0)]


def test_texts_that_look_like_dates_stay_texts() -> None:
    manifest = parse_manifest(GOOD + "    params: {day: 2024-01-01, at: 12:30}\n")
    assert manifest.spec.tasks[0].params == {"day": "2024-01-01", "at": "12:30"}


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"none\.yaml: there is no such file"):
        load_manifest(tmp_path / "none.yaml")
    with pytest.raises(ManifestError, match=r"^'': there is no such file"):
        load_manifest("")
    with pytest.raises(ManifestError, match="is a folder"):
        load_manifest(tmp_path)
    with pytest.raises(ManifestError, match="cannot be read"):
        load_manifest("nul\0byte")
    file = tmp_path / "run.yaml"
    file.write_bytes(b"a: 1\nb: \xff\xfe\n")
    with pytest.raises(ManifestError, match=r"run\.yaml:2: is not UTF-8"):
        load_manifest(file)
    file.write_bytes(b"#" * 300_000)
    with pytest.raises(ManifestError, match="larger than 256 KiB"):
        load_manifest(file)


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_manifest(tmp_path / "run.yaml").metadata.name == "a"


def test_tasks_are_checked_by_who_knows_them() -> None:
    asked: list[TaskSpec] = []

    def check(task: TaskSpec) -> None:
        asked.append(task)
        if task.name == "bad":
            raise TaskError("unknown task 'bad'")

    parse_manifest(GOOD, task_check=check)
    assert [task.name for task in asked] == ["miniwob.click-button"]
    text = HEAD + "spec:\n  task:\n  - {name: ok}\n  - {name: bad}\n"
    with pytest.raises(InvalidManifest, match=r"^run.yaml:8: spec\.task\[1\]\.name: unknown task 'bad'$"):
        parse_manifest(text, name="run.yaml", task_check=check)


def test_a_wrong_task_is_told_beside_everything_else() -> None:
    def check(task: TaskSpec) -> None:
        if task.name != "known":
            raise TaskError(f"unknown task {task.name!r}")

    text = (
        HEAD + "spec:\n  task:\n  - {name: known, weight: -1}\n  - {name: typo, maxSteps: 0}\n  - {name: 3}\n"
        "  - x\n  nope: 1\n"
    )
    with pytest.raises(InvalidManifest) as caught:
        parse_manifest(text, ["seed=-1"], name="run.yaml", task_check=check)
    assert [(p.where, p.path) for p in caught.value.problems] == [
        ("run.yaml:7", "spec.task[0].weight"),
        ("run.yaml:8", "spec.task[1].maxSteps"),
        ("run.yaml:8", "spec.task[1].name"),
        ("run.yaml:9", "spec.task[2].name"),
        ("run.yaml:10", "spec.task[3]"),
        ("run.yaml:11", "spec.nope"),
        ("--set seed", "spec.seed"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        GOOD + "    params: {a: " + "[" * 5000 + "]" * 5000 + "}\n",
        GOOD + "    params: {a: " + "[\n " * 5000 + "]" * 5000 + "}\n",
        GOOD + "    params: " + "{a: " * 5000 + "1" + "}" * 5000 + "\n",
        GOOD + "    params:\n      a:\n        " + "- " * 5000 + "1\n",
        GOOD + "    params:\n" + "".join(f"     {' ' * i}a:\n" for i in range(400)),
    ],
    ids=["flow", "lines", "maps", "blocks", "indented"],
)
def test_what_is_nested_too_deep_is_refused_in_a_moment(text: str) -> None:
    started = time.monotonic()
    assert "is nested deeper than 64 levels" in problem(text)
    assert time.monotonic() - started < 8  # it took 12 s and more, and now takes less than one


def test_too_many_values_are_refused_before_all_are_read() -> None:
    started = time.monotonic()
    assert "holds more than 20000 values" in problem(GOOD + "    params: {a: [" + "1," * 100_000 + "]}\n")
    assert time.monotonic() - started < 20  # reading all of them takes several times as long


def test_what_no_encoding_can_write_is_refused() -> None:
    half = GOOD + "    params: {{{}}}\n"
    assert "half of a surrogate pair" in problem(half.format(r'a: "\ud800"'))
    assert "half of a surrogate pair" in problem(half.format(r'"\udfff": 1'))


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid_and_survive_the_round_trip(path: Path) -> None:
    manifest = load_manifest(path)
    text = dump_manifest(manifest)
    assert parse_manifest(text) == manifest
    assert dump_manifest(parse_manifest(text)) == text


def test_what_is_written_out_is_resolved() -> None:
    text = dump_manifest(parse_manifest(GOOD))
    assert "batchSize: 128\n" in text
    assert "memoryPerBrowser: 2Gi\n" in text


def test_passwords_in_annotations_are_redacted() -> None:
    text = HEAD + "  annotations: {note: 'redis://u:hunter2@h'}\nspec: {task: {name: x}}\n"
    assert "hunter2" not in dump_manifest(parse_manifest(text))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_whatever_is_written_out_reads_back_equal(data: dict[str, Any]) -> None:
    source = parse(dump_yaml(data), "text")
    assert source.data == data
    assert source.problems == []


@settings(deadline=None, max_examples=10)
@given(params=st.dictionaries(st.text(min_size=1), json_values, max_size=3), rate=st.floats(1e-12, 1.0))
def test_any_manifest_survives_the_round_trip(params: dict[str, Any], rate: float) -> None:
    spec = {"task": {"name": "x", "params": params}, "learner": {"learningRate": rate}}
    manifest = RunManifest.model_validate({"metadata": {"name": "a"}, "spec": spec}, by_alias=True)
    assert parse_manifest(dump_manifest(manifest)) == manifest


AMBIGUOUS = "yes No on OFF y null ~ 012 1e3 0x1 1:30 2024-01-01 .5 .inf << ="


@pytest.mark.parametrize("text", AMBIGUOUS.split())
def test_texts_that_yaml_1_1_reads_otherwise_are_quoted(text: str) -> None:
    assert f'"{text}"' in dump_yaml({"key": text})
