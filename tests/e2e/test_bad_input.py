"""What a user can get wrong: one clear line each, the documented exit code, and nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

GOOD = """
apiVersion: webgym.io/v1alpha1
kind: WebGymRun
metadata:
  name: demo
spec:
  task:
    name: miniwob.click-test
  stop:
    steps: 100
"""


def webgym(cwd: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "webgym", *arguments],
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0]
    assert done.stdout == ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run.yaml").write_text(GOOD)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("run.yaml",)),
        ("- a\n- b\n", ("run.yaml", "map")),
        ("kind: [\n", ("run.yaml",)),
        ("\x00\x01", ("run.yaml",)),
        (GOOD + "  lerner: {}\n", ("lerner", "learner")),
        (GOOD + "  seed: many\n", ("seed",)),
        (GOOD + "  workers: {browsersPerCore: -1}\n", ("browsersPerCore",)),
        (GOOD + "  learner: {batchSize: 0}\n", ("batchSize",)),
        (GOOD.replace("miniwob.click-test", "miniwob.click-tset"), ("miniwob.click-test",)),
        (GOOD.replace("miniwob.click-test", "nowhere:Task"), ("nowhere",)),
        (GOOD + "  suspend: true\n", ("suspend",)),
        (GOOD + "  workers: {replicas: 0}\n", ("replicas",)),
    ],
    ids=lambda value: value.strip().splitlines()[-1][:30] if isinstance(value, str) and value.strip() else "",
)
def test_bad_manifests(folder: Path, text: str, words: tuple[str, ...]) -> None:
    (folder / "run.yaml").write_text(text)
    refused(webgym(folder, "run", "run.yaml", "--out", "out"), 2, *words)
    assert [p.name for p in folder.iterdir()] == ["run.yaml"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.yaml"], ("missing.yaml",)),
        (["."], ("folder",)),
        ([], ("FILE",)),
        (["run.yaml", "--set", "learner.batchsize=3"], ("batchSize",)),
        (["run.yaml", "--set", "nonsense"], ("nonsense",)),
        (["run.yaml", "--resume", "--out", "nothing"], ("nothing", "--resume")),
        (["run.yaml", "--resume"], ("--resume", "demo")),
        (["--resume", "--out", "nothing"], ("nothing",)),
    ],
    ids=" ".join,
)
def test_bad_arguments(folder: Path, arguments: list[str], words: tuple[str, ...]) -> None:
    refused(webgym(folder, "run", *arguments), 2, *words)
    assert [p.name for p in folder.iterdir()] == ["run.yaml"]


def test_output_folders_that_cannot_be_used(folder: Path) -> None:
    (folder / "full").mkdir()
    (folder / "full" / "thesis.tex").write_text("years")
    (folder / "file").write_text("")
    refused(webgym(folder, "run", "run.yaml", "--out", "full"), 2, "full", "not empty", "--out")
    refused(webgym(folder, "run", "run.yaml", "--out", "file"), 2, "file", "not a folder")
    refused(webgym(folder, "run", "run.yaml", "--out", "file/inside"), 2, "not a folder")
    assert [p.name for p in (folder / "full").iterdir()] == ["thesis.tex"]


def test_no_chromium(folder: Path) -> None:
    done = webgym(folder, "run", "run.yaml", "--out", "out", WEBGYM_CHROMIUM="/nonexistent/chromium")
    refused(done, 1, "/nonexistent/chromium")
    assert not (folder / "out").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu(folder: Path) -> None:
    done = webgym(folder, "run", "run.yaml", "--out", "out", "--set", "learner.device=cuda")
    refused(done, 1, "learner.device", "cuda", "GPU")
    assert not (folder / "out").exists()


def test_redis_that_is_not_there(folder: Path) -> None:
    done = webgym(folder, "run", "run.yaml", "--out", "out", "--set", "redis.url=redis://127.0.0.1:1")
    refused(done, 1, "127.0.0.1:1")
    assert not (folder / "out").exists()


def test_redis_that_refuses_the_password(folder: Path, locked_redis: Path) -> None:
    url = f"redis.url=unix://{locked_redis}"
    refused(webgym(folder, "run", "run.yaml", "--out", "out", "--set", url), 1, "password")
    wrong = webgym(
        folder,
        "run",
        "run.yaml",
        "--out",
        "out",
        "--set",
        url,
        "--set",
        "redis.passwordFrom.env=SECRET",
        SECRET="guess",
    )
    refused(wrong, 1, "password")
    assert "guess" not in wrong.stderr
    unset = webgym(
        folder, "run", "run.yaml", "--out", "out", "--set", url, "--set", "redis.passwordFrom.env=SECRET"
    )
    refused(unset, 2, "SECRET")
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["eval", "nothing"], 2, ("nothing",)),
        (["eval", "run"], 1, ("checkpoint",)),
        (["eval", "run", "--checkpoint", "elsewhere"], 2, ("elsewhere",)),
        (["eval", "run", "--episodes", "0"], 2, ("--episodes",)),
        (["eval", "run", "--seed", "-1"], 2, ("--seed",)),
        (["report", "nothing"], 2, ("nothing",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_other_commands(folder: Path, arguments: list[str], code: int, words: tuple[str, ...]) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "run.yaml").write_text(GOOD)
    refused(webgym(folder, *arguments), code, *words)
    assert [p.name for p in (folder / "run").iterdir()] == ["run.yaml"]


def test_resuming_with_other_settings(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "run.yaml").write_text(GOOD)
    done = webgym(folder, "run", "run.yaml", "--resume", "--out", "run", "--set", "observation.nodes=30")
    refused(done, 2, "observation.nodes", "20", "30")
