"""The idle part of the cores, and of a container's part of them."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from webgym_workers import idle_cores as module
from webgym_workers.idle_cores import IdleCores

Times = namedtuple("Times", "user system idle iowait")


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> list[Times]:
    times = [Times(0.0, 0.0, 0.0, 0.0)] * 4
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: list(times))
    return times


def own(tmp_path: Path, cpus: str = "max 100000") -> tuple[Path, Path]:
    (tmp_path / "cpu.max").write_text(cpus)
    (tmp_path / "cpu.stat").write_text("usage_usec 0\nuser_usec 0\n")
    (tmp_path / "own").write_text("0::/\n")
    return tmp_path, tmp_path / "own"


def test_it_is_told_from_one_look_to_the_next(
    cores: list[Times], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.psutil, "cpu_count", lambda: 4)
    idle = IdleCores(*own(tmp_path))
    idle._cpus = frozenset({1, 2})
    assert idle.look() is None
    cores[0] = Times(0.0, 0.0, 100.0, 0.0)
    cores[1] = Times(2.0, 1.0, 1.0, 0.0)
    cores[2] = Times(3.0, 0.0, 0.0, 1.0)
    # Core 0 is not ours; waiting for a disk is idle.
    assert idle.look() == pytest.approx(2 / 8)
    assert idle.look() is None


def test_under_a_limit_it_is_what_is_left_of_the_limit(
    cores: list[Times], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: clock)
    idle = IdleCores(*own(tmp_path, "150000 100000"))
    assert idle.look() is None
    clock = 102.0
    cores[:] = [Times(1.0, 0.0, 1.0, 0.0)] * 4
    # 2.4 of the 3 seconds that 1.5 cores have in 2; the machine is half idle.
    (tmp_path / "cpu.stat").write_text("usage_usec 2400000\n")
    assert idle.look() == pytest.approx(0.2)


def test_a_limit_whose_use_cannot_be_read_is_left_out(cores: list[Times], tmp_path: Path) -> None:
    idle = IdleCores(*own(tmp_path, "150000 100000"))
    (tmp_path / "cpu.stat").unlink()
    assert idle.look() is None
    cores[:] = [Times(1.0, 0.0, 3.0, 0.0)] * 4
    assert idle.look() == pytest.approx(0.75)


def test_this_machine_has_some(tmp_path: Path) -> None:
    idle = IdleCores()
    idle.look()
    sum(range(2_000_000))
    part = idle.look()
    assert part is None or 0 <= part <= 1
