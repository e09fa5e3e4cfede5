"""How many browsers a machine bears."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webgym.spec import Workers
from webgym_workers.capacity import Machine, browser_count, machine, split_browsers

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
