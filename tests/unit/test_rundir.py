from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from webgym.errors import ExitCode, OutputError
from webgym.rundir import (
    JsonLinesWriter,
    RunDirectory,
    last_json_line,
    read_json_lines,
    remove_scratch,
    write_atomic,
    write_json,
)


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "a" / "b") as run:
        assert run.logs.is_dir()
        assert len(run.uid) == 32


def test_an_existing_empty_folder_will_do(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path).close()


def test_a_folder_with_something_in_it_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(OutputError, match=r"not empty.*--out") as caught:
        RunDirectory.create(tmp_path)
    assert caught.value.exit_code == ExitCode.USAGE
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_with_a_run_names_resume(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("")
    with pytest.raises(OutputError, match="--resume"):
        RunDirectory.create(tmp_path)


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(OutputError, match="not a folder"):
            RunDirectory.create(path)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError, match="not a folder"):
        RunDirectory.create(tmp_path / "link")


@pytest.mark.skipif(not Path("/proc/1").is_dir(), reason="needs a file system that nobody can write to")
def test_an_unwritable_place_is_one_line() -> None:
    with pytest.raises(OutputError, match=r"/proc/webgym.* cannot be") as caught:
        RunDirectory.create(Path("/proc/webgym"))
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_missing_permission_is_told_beforehand(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="permission"):
        RunDirectory.check_new(tmp_path / "run")


def test_a_name_too_long_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="too long"):
        RunDirectory.create(tmp_path / ("x" * 300))


def test_two_runs_do_not_share_a_folder_and_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    code = f"""
import os, sys, time
from pathlib import Path
from webgym.rundir import RunDirectory
run = RunDirectory.create(Path({str(tmp_path / "run")!r}))
run.manifest.write_text("")
print("locked", flush=True)
time.sleep(60)
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(OutputError, match=f"in use by another run .process {holder.pid}."):
        RunDirectory.resume(tmp_path / "run")
    RunDirectory.open(tmp_path / "run")  # Reading is allowed.
    holder.kill()
    holder.wait()
    holder.stdout.close()
    RunDirectory.resume(tmp_path / "run").close()


def test_resuming_keeps_the_uid(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "run") as first:
        first.manifest.write_text("")
    with RunDirectory.resume(tmp_path / "run") as again:
        assert again.uid == first.uid


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_resuming_needs_a_run(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(OutputError, match="--resume"):
        RunDirectory.resume(tmp_path / name)


def test_a_discarded_run_leaves_nothing(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.manifest.write_text("")
    run.discard()
    assert not (tmp_path / "run").exists()

    (tmp_path / "mine").mkdir()
    RunDirectory.create(tmp_path / "mine").discard()
    assert list((tmp_path / "mine").iterdir()) == []


def test_where_the_modules_of_tasks_lie_is_kept_newest_first(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "run") as directory:
        assert directory.task_path == ()
        directory.remember_task_path([tmp_path / "a", Path()])
        assert directory.task_path == (tmp_path / "a", Path.cwd())
        directory.remember_task_path([tmp_path / "b", tmp_path / "a"])
        assert directory.task_path == (tmp_path / "b", tmp_path / "a", Path.cwd())
        directory.discard()
    assert list(tmp_path.iterdir()) == []


def test_default_names_do_not_collide(tmp_path: Path) -> None:
    first = RunDirectory.default_path("demo", tmp_path)
    first.mkdir()
    second = RunDirectory.default_path("demo", tmp_path)
    assert first != second
    assert first.name.startswith("demo-")
    with pytest.raises(OutputError, match="no run of 'demo'"):
        RunDirectory.latest("demo", tmp_path)
    second.mkdir(exist_ok=True)
    (second / "run.yaml").write_text("")
    assert RunDirectory.latest("demo", tmp_path) == second


def test_an_atomic_write_leaves_the_old_file_when_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_json(path, {"success": 1.0, "loss": math.nan, "list": [math.inf, (1, 2)]})
    assert json.loads(path.read_text()) == {"success": 1.0, "loss": None, "list": [None, [1, 2]]}
    before = path.read_text()
    with pytest.raises(TypeError):
        write_json(path, {"bad": object()})
    assert path.read_text() == before
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["file.json"]


@pytest.mark.parametrize("rest", [b"", b'{"n": 2', b"x" * 200_000])
def test_appending_drops_what_a_crash_left_unfinished(tmp_path: Path, rest: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"n": 1}\n' + rest)
    with JsonLinesWriter(path) as writer:
        writer.write_many([{"n": 3}, {"n": math.nan}])
        writer.sync()
    assert list(read_json_lines(path)) == [{"n": 1}, {"n": 3}, {"n": None}]


def test_reading_skips_damage_and_a_missing_file_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    assert list(read_json_lines(path)) == []
    path.write_bytes(b'{"n": 1}\n\xff\xfe\n[1]\n{"n": 2}\n{"n":')
    assert list(read_json_lines(path)) == [{"n": 1}, {"n": 2}]


def test_the_last_line_is_found_behind_much_else(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert last_json_line(path) is None
    path.write_bytes(b"")
    assert last_json_line(path) is None
    path.write_bytes(b'{"n": 0}\n' * 20_000 + b'{"n": 2}\n[1]\n{"n":')
    assert last_json_line(path) == {"n": 2}


def test_what_a_killed_writer_left_is_removed_when_the_run_is_resumed(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("")
    (tmp_path / ".report.html.123.tmp").write_text("<htm")
    RunDirectory.resume(tmp_path).close()
    assert not list(tmp_path.glob(".*.tmp"))
    (tmp_path / ".webgym" / "note").write_text("stays")
    (tmp_path / ".summary.json.7.tmp").write_text("{")
    remove_scratch(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".webgym", "logs", "run.yaml"]
