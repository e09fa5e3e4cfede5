"""What the doctor concludes from measured facts, on each platform, and how it says to mend it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from webgym_workers.doctor import mends
from webgym_workers.doctor.browsers import forbidding_switch, judge_failed_start, judge_sandbox
from webgym_workers.doctor.clicks import colour_codes, judge_clicks, largest_offset, seen_at, targets
from webgym_workers.doctor.clocks import judge_clocks
from webgym_workers.doctor.colours import COLOURS, judge_colours
from webgym_workers.doctor.display import judge_no_display
from webgym_workers.doctor.finding import Status
from webgym_workers.doctor.fonts import CHARACTERS, UNASSIGNED, Glyph, judge_fonts, missing_scripts
from webgym_workers.doctor.host import Host
from webgym_workers.doctor.limits import (
    TYPICAL,
    Limits,
    judge_memory,
    judge_open_files,
    judge_processes,
    judge_shared_memory,
    read_limits,
)
from webgym_workers.doctor.software import NEEDED, OPTIONAL, judge_packages, judge_torch

MIB, GIB = 2**20, 2**30
DEBIAN = Host("Linux", "apt")
ROOT = Host("Linux", "apt", root=True)
FEDORA = Host("Linux", "dnf")
UBUNTU = Host("Linux", "apt", ubuntu=True)
CONTAINER = Host("Linux", "apt", root=True, container=True)
OTHER = Host("Linux")
MAC = Host("Darwin")
WINDOWS = Host("Windows")


@pytest.mark.parametrize(
    ("host", "software", "mend"),
    [
        (DEBIAN, ("xvfb",), "sudo apt-get install -y xvfb"),
        (ROOT, ("cjk", "emoji"), "apt-get install -y fonts-noto-cjk fonts-noto-color-emoji"),
        (FEDORA, ("xvfb",), "sudo dnf install -y xorg-x11-server-Xvfb"),
        (CONTAINER, ("xvfb",), "in the image: RUN apt-get update && apt-get install -y xvfb"),
        (OTHER, ("xvfb", "latin"), "install Xvfb and Liberation fonts with your package manager"),
        (ROOT, ("chromium",), "apt-get install -y chromium"),
        (DEBIAN, ("chromium",), "playwright install chromium"),
        (MAC, ("chromium",), "playwright install chromium"),
        (replace(UBUNTU, root=True), ("chromium",), "playwright install --with-deps chromium"),
        (MAC, ("cjk",), "install Noto CJK fonts"),
        (WINDOWS, ("chromium",), "run WebGym in WSL 2"),
    ],
)
def test_how_software_is_installed(host: Host, software: tuple[mends.Software, ...], mend: str) -> None:
    assert mends.install(host, *software).startswith(mend)


def test_a_missing_module_of_unix_is_no_package() -> None:
    assert "WSL 2" in mends.missing_module(WINDOWS, "fcntl")
    assert "pip install" in mends.missing_module(WINDOWS, "torch")
    assert "pip install" in mends.missing_module(MAC, "gymnasium")


@pytest.mark.parametrize(
    ("message", "ended", "found", "mend"),
    [
        ("cannot start c: it ended at once", True, "it ended at once", "--version"),
        ("cannot start c: no answer in 15 s", False, "cannot start c: no answer in 15 s", "--version"),
        ("cannot start c: odd", False, "cannot start c: odd (no answer in 15 s)", "--version"),
        ("cannot start c: Check failed: Too many open files (24)", True, "Too many", "see open files"),
        ("cannot start c: error while loading shared libraries: l.so", True, "l.so", "apt-get install"),
    ],
)
def test_a_browser_that_does_not_start(message: str, ended: bool, found: str, mend: str) -> None:
    finding = judge_failed_start(message, Path("/opt/c"), ended=ended, host=ROOT)
    assert finding.status is Status.FAILED
    assert found in finding.found
    assert mend in finding.mend


def test_what_the_sandbox_means_in_each_mode() -> None:
    assert judge_sandbox("Require", None, None, DEBIAN).status is Status.OK
    assert judge_sandbox("Disabled", "browser.sandbox is Disabled", None, DEBIAN).status is Status.WARNING
    as_root = judge_sandbox("Prefer", "running as root", None, ROOT)
    assert as_root.status is Status.WARNING
    assert "another user" in as_root.mend
    assert as_root.numbers["sandboxed"] is False
    required = judge_sandbox("Require", "running as root", None, CONTAINER)
    assert required.status is Status.FAILED
    assert "USER" in required.mend
    assert "browser.sandbox to Prefer" in required.mend
    no_namespaces = "user namespaces are forbidden"
    switch = "kernel.unprivileged_userns_clone=1"
    assert judge_sandbox("Prefer", no_namespaces, switch, DEBIAN).mend == f"sudo sysctl -w {switch}"
    assert "seccomp" in judge_sandbox("Prefer", no_namespaces, None, replace(CONTAINER, root=False)).mend


def test_which_switch_forbids_user_namespaces(tmp_path: Path) -> None:
    assert forbidding_switch(tmp_path) is None
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel/apparmor_restrict_unprivileged_userns").write_text("1\n")
    assert forbidding_switch(tmp_path) == "kernel.apparmor_restrict_unprivileged_userns=0"
    (tmp_path / "kernel/unprivileged_userns_clone").write_text("0\n")
    assert forbidding_switch(tmp_path) == "kernel.unprivileged_userns_clone=1"


def test_no_display_is_a_warning_unless_it_is_required() -> None:
    finding = judge_no_display(DEBIAN, "no Xvfb on this machine", required=False)
    assert (finding.status, finding.mend) == (Status.WARNING, "sudo apt-get install -y xvfb")
    assert not finding.can_be_used
    assert judge_no_display(FEDORA, "no Xvfb", required=True).status is Status.FAILED
    for host in (MAC, WINDOWS):
        assert judge_no_display(host, "", required=False).status is Status.SKIPPED
        assert judge_no_display(host, "", required=True).mend == "set browser.frames to Auto"


@pytest.mark.parametrize(
    ("allowed", "status"),
    [(64, Status.FAILED), (128, Status.FAILED), (200, Status.WARNING), (1024, Status.OK), (None, Status.OK)],
)
def test_open_files(allowed: int | None, status: Status) -> None:
    finding = judge_open_files(Limits(open_files=allowed, open_files_hard=allowed), TYPICAL, 3, 8, DEBIAN)
    assert finding.status is status
    assert bool(finding.mend) == (status is not Status.OK)


def test_many_browsers_of_one_process_need_files_in_it() -> None:
    finding = judge_open_files(Limits(open_files=1000), TYPICAL, 64, 64, DEBIAN)
    assert finding.numbers["needed"] == 64 + 64 * TYPICAL.own_files
    assert finding.status is Status.WARNING


def test_how_to_open_more_files() -> None:
    assert mends.more_open_files(DEBIAN, 4096, 20000).startswith("ulimit -n 4096")
    assert "limits.conf" in mends.more_open_files(DEBIAN, 4096, 1024)
    assert "--ulimit nofile=4096" in mends.more_open_files(replace(CONTAINER, root=False), 4096, 1024)
    assert "launchctl" in mends.more_open_files(MAC, 4096, 1024)


def test_processes_are_bounded_by_the_tighter_limit() -> None:
    assert judge_processes(Limits(), TYPICAL, 3, DEBIAN).status is Status.OK
    need = 3 * TYPICAL.threads
    group = Limits(user_processes=100_000, pids=need + 50, pids_running=100)
    finding = judge_processes(group, TYPICAL, 3, CONTAINER)
    assert finding.status is Status.FAILED
    assert "pids.max" in finding.found
    assert f"--pids-limit={2 * need + 100}" in finding.mend
    user = Limits(user_processes=need + 150, user_running=100)
    finding = judge_processes(user, TYPICAL, 3, DEBIAN)
    assert finding.status is Status.WARNING
    assert finding.mend.startswith(f"ulimit -u {2 * need + 100}")


def test_a_mac_counts_processes_and_not_threads() -> None:
    finding = judge_processes(Limits(user_processes=1000), TYPICAL, 3, MAC)
    assert finding.numbers["needed"] == 3 * TYPICAL.processes
    assert finding.status is Status.OK


def test_the_shared_memory_of_a_container_by_default_is_too_small() -> None:
    small = Limits(shared_place="/dev/shm", shared_bytes=64 * MIB, shared_free=64 * MIB)
    finding = judge_shared_memory(small, TYPICAL, 8, True, CONTAINER)
    assert finding.status is Status.FAILED
    assert "--shm-size=512m" in finding.mend
    assert finding.mend.endswith("workers.maxBrowsers: 3")
    finding = judge_shared_memory(replace(small, shared_free=MIB), TYPICAL, 8, True, DEBIAN)
    assert "mount -o remount" in finding.mend
    assert "maxBrowsers" not in finding.mend
    large = replace(small, shared_bytes=8 * GIB, shared_free=8 * GIB)
    assert judge_shared_memory(large, TYPICAL, 8, True, CONTAINER).status is Status.OK


@pytest.mark.parametrize("host", [MAC, WINDOWS])
def test_elsewhere_memory_is_shared_without_a_volume(host: Host) -> None:
    assert judge_shared_memory(Limits(), TYPICAL, 100, True, host).status is Status.OK


def test_memory() -> None:
    each = TYPICAL.resident_bytes
    assert judge_memory(TYPICAL, 8 * GIB, 6 * GIB, 3, DEBIAN).status is Status.OK
    finding = judge_memory(TYPICAL, 8 * GIB, 2 * each, 3, DEBIAN)
    assert (finding.status, finding.mend) == (Status.WARNING, "workers.maxBrowsers: 2, or more memory")
    finding = judge_memory(TYPICAL, each, each // 2, 3, CONTAINER)
    assert finding.status is Status.FAILED
    assert "limit of the container" in finding.mend


@pytest.mark.skipif(sys.platform == "win32", reason="no such limits")
def test_limits_are_read_from_the_control_group(tmp_path: Path) -> None:
    (tmp_path / "pids.max").write_text("512\n")
    (tmp_path / "pids.current").write_text("12\n")
    (tmp_path / "memory.max").write_text(f"{GIB}\n")
    (tmp_path / "memory.current").write_text(f"{GIB // 2}\n")
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {GIB // 4}\n")
    limits = read_limits(tmp_path, tmp_path)
    assert (limits.pids, limits.pids_running) == (512, 12)
    assert 0 < limits.memory_free <= GIB - GIB // 4
    none = read_limits(tmp_path / "none", tmp_path / "none")
    assert none.pids is None
    assert none.shared_place is None


def drawing(*bars: tuple[int, int, int, int], colour: tuple[int, int, int] = (0, 0, 0)) -> Glyph:
    """A glyph of filled rectangles: x, y, width, height."""
    pixels: NDArray[np.uint8] = np.full((64, 64, 3), 255, np.uint8)
    for x, y, width, height in bars:
        pixels[y : y + height, x : x + width] = colour
    return Glyph(pixels)


BOX = drawing((20, 12, 24, 2), (20, 50, 24, 2), (20, 12, 2, 40), (42, 12, 2, 40))


def glyphs(**changed: Glyph) -> dict[str, Glyph]:
    """A font with all characters, each unlike the others; names of scripts stand for their characters."""
    drawn = {
        character: drawing((4 + 3 * index, 4, 6, 50), (4, 4 + 3 * index, 50, 5))
        for index, character in enumerate(CHARACTERS)
    }
    drawn |= dict.fromkeys(UNASSIGNED, BOX)
    drawn["l"], drawn["_"], drawn["一"] = (
        drawing((30, 10, 4, 36)),
        drawing((20, 54, 22, 3)),
        drawing((10, 30, 42, 4)),
    )
    drawn["🔴"], drawn["🔵"] = (
        drawing((12, 12, 40, 40), colour=(221, 46, 68)),
        drawing((12, 12, 40, 40), colour=(85, 172, 238)),
    )
    return drawn | changed


def test_all_scripts_are_recognised() -> None:
    assert missing_scripts(glyphs()) == []
    assert judge_fonts([], DEBIAN).status is Status.OK


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({"中": BOX}, ["Chinese"]),
        ({"中": drawing((5, 5, 9, 9)), "国": drawing((5, 5, 9, 9))}, ["Chinese"]),  # a sign for the block
        ({"一": drawing((20, 12, 24, 40))}, ["Chinese"]),  # a box with its number in it
        ({"あ": drawing()}, ["Japanese"]),
        ({"한": BOX, "글": BOX}, ["Korean"]),
        ({"🔴": drawing((12, 12, 40, 40))}, ["emoji"]),  # of a font without colours
        ({"A": BOX}, ["Latin"]),
        ({"l": drawing((20, 10, 30, 30))}, ["Latin"]),
    ],
)
def test_boxes_are_told_from_characters(changed: dict[str, Glyph], missing: list[str]) -> None:
    assert missing_scripts(glyphs(**changed)) == missing


def test_missing_fonts() -> None:
    finding = judge_fonts(["Korean", "emoji"], ROOT)
    assert finding.status is Status.WARNING
    assert finding.mend == "apt-get install -y fonts-noto-cjk fonts-noto-color-emoji"
    assert finding.numbers["korean"] is False
    assert judge_fonts(["Latin"], MAC).status is Status.FAILED


def colour_frame() -> NDArray[np.uint8]:
    frame = np.zeros((224, 224, 3), np.uint8)
    edges = [0, 75, 149, 224]
    for index, colour in enumerate(COLOURS):
        row, column = divmod(index, 3)
        frame[edges[row] : edges[row + 1], edges[column] : edges[column + 1]] = colour
    return frame


def test_colours_of_frames() -> None:
    assert judge_colours(colour_frame(), 0, "by screenshot").numbers["largest_difference"] == 0
    swapped = judge_colours(colour_frame()[..., ::-1], 8, "by screenshot")
    assert swapped.status is Status.FAILED
    assert "(0, 0, 255) where the page is (255, 0, 0)" in swapped.found
    black = judge_colours(np.zeros((224, 224, 3), np.uint8), 8, "from shared memory")
    assert "black" in black.found
    assert "Screenshot" in black.mend


def test_a_target_is_found_where_it_is_seen() -> None:
    picture = np.full((60, 90, 3), 255, np.uint8)
    picture[15:30, 45:60] = (20, 30, 140)
    assert seen_at(colour_codes(picture), (20, 30, 140), 1.5) == (35.0, 15.0)
    assert seen_at(colour_codes(picture), (21, 30, 140), 1.5) is None
    assert len({target.colour for target in targets()}) == len(targets())


def test_offsets_of_clicks() -> None:
    wanted = targets()
    hits = [[index, target.x, target.y] for index, target in enumerate(wanted)]
    assert largest_offset(hits, wanted) == 0
    hits[2] = [2, wanted[2].x + 0.3, wanted[2].y - 0.4]
    assert largest_offset(hits, wanted) == pytest.approx(0.5)
    assert largest_offset([*hits[:-1], [-1, 5, 5]], wanted) is None
    assert largest_offset(hits[:-1], wanted) is None


def test_clicks_that_go_astray_at_one_scale() -> None:
    assert judge_clicks({1.0: 0.0, 1.5: 0.34, 2.0: 0.5}, "here").status is Status.OK
    finding = judge_clicks({1.0: 0.0, 1.5: 3.2, 2.0: None}, "here")
    assert finding.status is Status.FAILED
    assert "3.20 at 1.5, missed at 2" in finding.found
    assert "deviceScaleFactor to 1," in finding.mend
    assert finding.numbers == {
        "offset_pixels_at_1": 0.0,
        "offset_pixels_at_1.5": 3.2,
        "offset_pixels_at_2": None,
    }


def test_clocks() -> None:
    frames = [index * 1000 / 60 for index in range(40)]
    finding = judge_clocks(frames, [10.2, 10.4, 10.1], 0.1, 1)
    assert (finding.status, finding.numbers["frames_per_second"]) == (Status.OK, 60.0)
    slow = judge_clocks([0, 100, 200, 300], [10.2], 0.1, 1)
    assert (slow.status, slow.numbers["frames_per_second"]) == (Status.WARNING, 10.0)
    assert judge_clocks(frames, [55.0, 60.0, 43.0], 0.1, 1).status is Status.WARNING
    assert judge_clocks([], [10.0], 0.1, 1).status is Status.FAILED
    assert judge_clocks(frames, [10.0], None, 1).found == "the page's clock stands still"


def test_packages() -> None:
    versions: dict[str, Any] = dict.fromkeys((*NEEDED, *OPTIONAL), "1.0")
    assert judge_packages(versions, "0.1.0", None).status is Status.OK
    assert judge_packages({**versions, "gymnasium": None}, "0.1.0", None).status is Status.FAILED
    assert judge_packages({**versions, "playwright": None}, "0.1.0", None).status is Status.WARNING
    other = "the distribution webgym 0.3 from PyPI is another project: pip uninstall webgym"
    finding = judge_packages(versions, "0.1.0", other)
    assert (finding.status, finding.mend) == (Status.WARNING, "pip uninstall webgym")


def test_torch() -> None:
    cpu = {"version": "2.13.0+cpu", "built_for_cuda": False, "cuda": False, "device": "cpu"}
    gpu = {"version": "2.13.0", "built_for_cuda": True, "cuda": True, "device": "Abacus GPU"}
    assert judge_torch(cpu, "", False, "auto", DEBIAN).status is Status.OK
    assert judge_torch(gpu, "", True, "cuda", DEBIAN).found == "PyTorch 2.13.0 on Abacus GPU"
    assert judge_torch(cpu, "", True, "auto", DEBIAN).status is Status.WARNING
    assert judge_torch(cpu, "", True, "cpu", DEBIAN).status is Status.OK
    assert judge_torch(cpu, "", False, "cuda", DEBIAN).status is Status.FAILED
    assert judge_torch({**cpu, "built_for_cuda": True}, "", True, "auto", DEBIAN).mend.startswith("see why")
    missing = judge_torch(None, "ModuleNotFoundError: No module named 'torch'", False, "auto", MAC)
    assert missing.status is Status.FAILED
    assert "No module named 'torch'" in missing.found
