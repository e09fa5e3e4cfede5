"""How many browsers a machine bears."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webgym.errors import RunError
from webgym.spec import Workers
from webgym.spec.cpus import CpuSet
from webgym_workers.capacity import (
    Machine,
    browser_affinity,
    browser_count,
    core_groups,
    machine,
    split_browsers,
)

GIB = 2**30


def workers(**fields: object) -> Workers:
    return Workers.model_validate(fields)


@pytest.mark.parametrize(
    ("fields", "here", "count"),
    [
        ({}, Machine(2, 64 * GIB), 3),
        ({}, Machine(3, 64 * GIB), 4),  # 4.5 browsers are 4
        ({}, Machine(0.5, 64 * GIB), 1),
        ({}, Machine(16, 8 * GIB), 4),  # of 2Gi each
        ({}, Machine(16, GIB), 1),
        ({"memoryPerBrowser": "512Mi"}, Machine(16, 8 * GIB), 16),
        ({"browsersPerCore": 0.1}, Machine(30, 64 * GIB), 3),  # not 2.9999999999999996
        ({"browsersPerCore": 0.01}, Machine(2, 64 * GIB), 1),
        ({"maxBrowsers": 5}, Machine(16, 64 * GIB), 5),
        ({"maxBrowsers": 50}, Machine(2, 64 * GIB), 3),
        ({"cpuAffinity": "0-3"}, Machine(16, 64 * GIB), 6),
        ({"cpuAffinity": "0-3", "maxBrowsers": 2}, Machine(16, 64 * GIB), 2),
        (
            {"cpuAffinity": "0-15,16-31"},
            Machine(8, 64 * GIB, frozenset(range(8))),
            12,
        ),  # half of them are not here
    ],
)
def test_browsers_by_cores_memory_and_what_is_allowed(
    fields: dict[str, object], here: Machine, count: int
) -> None:
    assert browser_count(workers(**fields), here) == count


@given(st.integers(1, 2000), st.integers(1, 64))
def test_browsers_are_split_evenly_over_as_few_processes_as_can_be(browsers: int, per_process: int) -> None:
    groups = split_browsers(browsers, per_process)
    assert sum(groups) == browsers
    assert max(groups) <= per_process
    assert max(groups) - min(groups) <= 1
    assert len(groups) == -(-browsers // per_process)


def test_the_machine_as_it_is_without_a_container(tmp_path: Path) -> None:
    here = machine(tmp_path / "no-cgroup")
    assert 1 <= here.cores <= (os.cpu_count() or 1)
    assert here.memory_bytes == psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("cpu", "memory", "cores", "limit"),
    [
        ("50000 100000", "1073741824", 0.5, GIB),
        ("max 100000", "max", None, None),
        ("99999900000 100000", str(2**60), None, None),  # more than there is
        ("50000 0", "", None, None),
        ("", "lots", None, None),
        ("-1", "-1", None, None),
    ],
)
def test_a_container_may_be_smaller_than_its_machine(
    tmp_path: Path, cpu: str, memory: str, cores: float | None, limit: int | None
) -> None:
    (tmp_path / "cpu.max").write_text(cpu)
    (tmp_path / "memory.max").write_text(memory)
    whole, here = machine(tmp_path / "none"), machine(tmp_path)
    assert here.cores == (whole.cores if cores is None else cores)
    assert here.memory_bytes == (whole.memory_bytes if limit is None else limit)


def test_a_damaged_limit_is_no_limit(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_bytes(b"\xff\xfe 100000")
    (tmp_path / "memory.max").mkdir()
    assert machine(tmp_path) == machine(tmp_path / "none")


def test_browsers_are_spread_over_the_groups_of_cores_neighbours_together() -> None:
    cpus = CpuSet("0-1,2,8-9")
    here = frozenset(range(16))
    assert browser_affinity(cpus, here, 0, 6, 6) == [(0, 1), (0, 1), (2,), (2,), (8, 9), (8, 9)]
    assert browser_affinity(cpus, here, 4, 2, 6) == [(8, 9), (8, 9)]
    assert browser_affinity(cpus, here, 0, 1, 1) == [(0, 1)]
    assert browser_affinity(None, here, 0, 2, 2) == []


def test_cores_that_are_not_here_are_left_out_and_none_at_all_is_an_error() -> None:
    cpus = CpuSet("0-15,16-31")
    assert core_groups(cpus, frozenset({0, 1, 2, 5})) == [(0, 1, 2, 5)]
    with pytest.raises(RunError, match=r"cpuAffinity is 16-31, .* cores 0-2,5 only"):
        core_groups(CpuSet("16-31"), frozenset({0, 1, 2, 5}))
    # A system that does not tell its cores is believed to have them.
    assert core_groups(cpus, frozenset()) == list(cpus.groups)


def test_a_slice_or_service_has_the_limits_of_all_that_it_lies_in(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    inner = root / "user.slice" / "job.service"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000")
    (inner / "memory.max").write_text(str(2 * GIB))
    (root / "user.slice" / "cpu.max").write_text("25000 100000")
    (root / "user.slice" / "memory.max").write_text(str(4 * GIB))
    own.write_text("1:name=systemd:/elsewhere\n0::/user.slice/job.service\n")
    here = machine(root, own)
    assert (here.cores, here.memory_bytes) == (0.25, 2 * GIB)
    own.write_text("0::/../../other\n")
    assert machine(root, own) == machine(tmp_path / "none", own)
