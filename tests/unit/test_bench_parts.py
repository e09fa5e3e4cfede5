"""The arithmetic of benches: fitted growth, browsers that were replaced, tallies, arguments, what is left behind."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import mmap
import os
import socket
from itertools import islice
from pathlib import Path

import pytest

from webgym.errors import UsageError
from webgym_workers.benches import soak
from webgym_workers.benches.contest import Tally, check_positive, take_turn
from webgym_workers.benches.footprint import Leftovers, ZombieWatch, tree_bytes
from webgym_workers.benches.local_server import local_server, page
from webgym_workers.benches.scale import browser_counts
from webgym_workers.benches.slope import fit_slope, stitch
from webgym_workers.benches.soak import Sample, growth
from webgym_workers.benches.steps import overall_rate
from webgym_workers.tasks.registry import create_task


def test_a_line_is_found_again_with_the_error_of_its_slope() -> None:
    exact = fit_slope([0, 1, 2, 3], [5, 7, 9, 11])
    assert (exact.slope, exact.intercept, exact.error) == (2.0, 5.0, 0.0)
    # Residuals -0.1, 0.2, -0.1: their squares sum to 0.06, with one degree of freedom; the spread of x is 2.
    noisy = fit_slope([0, 1, 2], [1.0, 2.8, 4.0])
    assert noisy.slope == pytest.approx(1.5)
    assert noisy.error == pytest.approx((0.06 / 2) ** 0.5)
    assert fit_slope([0, 1], [0, 1]).error == float("inf")


@pytest.mark.parametrize(("x", "y"), [([], []), ([1], [1]), ([2, 2], [1, 5]), ([1, 2], [1])])
def test_a_slope_needs_two_places(x: list[float], y: list[float]) -> None:
    with pytest.raises(ValueError, match=r"slope needs|x for"):
        fit_slope(x, y)


def test_a_replaced_browser_goes_on_where_the_one_before_it_ended() -> None:
    samples = [
        {0: (11, 100), 1: (21, 50)},
        {0: (11, 140), 1: (21, 50)},
        {0: (12, 90), 1: (21, 50)},  # replaced: smaller, which mends nothing
        {1: (21, 50)},  # being replaced again
        {0: (13, 80), 1: (21, 50)},
        {0: (13, 95), 1: (21, 50)},
    ]
    assert stitch(samples) == [150, 190, 190, 190, 190, 205]


def test_growth_counts_from_the_warm_up_on_and_recycling_hides_none() -> None:
    def sample(resets: int, browser: int, pid: int) -> Sample:
        return Sample(resets, 10_000_000, {0: (pid, browser * 1_000_000)}, 0, 0)

    samples = [
        sample(0, 500, 1),
        sample(1000, 100, 1),
        sample(2000, 104, 1),
        sample(3000, 90, 2),
        sample(4000, 98, 2),
    ]
    found = growth(samples, warm_up=1000)
    assert found["process"].slope == pytest.approx(0.0)
    # 100, 104, 104, 112 MB.
    assert found["all"].slope == pytest.approx(3.6)
    assert found["browsers"].slope == pytest.approx(3.6)


def test_the_pages_of_a_soak_are_mixed_repeatable_and_there() -> None:
    drawn = list(islice(soak.resets(3), 2000))
    assert drawn == list(islice(soak.resets(3), 2000))
    names = {(task, params.get("page")) for task, params, _ in drawn}
    assert len(names) == len(soak.MINIWOB) + len(soak.LOCAL_PAGES)
    for task, params, _ in {(t, str(p)): (t, p, s) for t, p, s in drawn}.values():
        assert create_task(task, params).start_page(0).startswith("file:")


@pytest.mark.parametrize("arguments", [{"resets": 10}, {"resets": 100, "warm_up": 99}, {"resets": 0}])
def test_a_soak_too_short_to_say_anything_is_refused(arguments: dict[str, int]) -> None:
    parser = argparse.ArgumentParser()
    soak.SoakBench().configure(parser)
    args = parser.parse_args([])
    for name, value in arguments.items():
        setattr(args, name, value)
    with pytest.raises(UsageError):
        soak.SoakBench().run(args)


def test_numbers_of_browsers() -> None:
    assert browser_counts("50,2, 5,2") == (2, 5, 50)
    for wrong in ("", "0,2", "two", "2.5", "-1"):
        with pytest.raises(UsageError, match="--browsers must be"):
            browser_counts(wrong)


def test_options_must_be_above_zero() -> None:
    check_positive(argparse.Namespace(rounds=1, browsers=None), "rounds", "browsers")
    with pytest.raises(UsageError, match="--warm-up must be above 0"):
        check_positive(argparse.Namespace(warm_up=0), "warm_up")


async def test_a_turn_counts_what_was_done_and_how_long_it_took() -> None:
    tally, done = Tally(), [0, 0]

    def working(index: int) -> object:
        async def work() -> None:
            done[index] += 1
            await asyncio.sleep(0.001)

        return work

    await take_turn(tally, [working(0), working(1)], 0.05)  # type: ignore[list-item]
    await take_turn(tally, [working(0)], 0.02)  # type: ignore[list-item]
    assert len(tally.seconds) == sum(done)
    assert min(done) >= 1
    assert tally.elapsed >= 0.07
    assert tally.per_second == pytest.approx(len(tally.seconds) / tally.elapsed)
    assert len(tally.rates) == 2
    assert tally.p95_ms >= tally.median_ms > 0
    assert Tally().per_second == 0.0


def test_only_zombies_that_stay_are_counted() -> None:
    watch = ZombieWatch()
    watch.look({(1, 0.0), (2, 0.0)})
    watch.look({(2, 0.0)})
    watch.look(set())
    assert watch.stayed == {(2, 0.0)}


def test_what_is_left_behind_is_told_unless_somebody_uses_it(tmp_path: Path) -> None:
    (tmp_path / "webgym-chromium-1-old").mkdir()
    leftovers = Leftovers([tmp_path, tmp_path / "not there"])
    for name in ("webgym-chromium-2-a", "webgym-chromium-3-held", "notes"):
        (tmp_path / name).mkdir()
    held = os.open(tmp_path / "webgym-chromium-3-held", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    (tmp_path / ".X7-lock").write_text(f"{os.getpid():>10}\n")
    with socket.socket(socket.AF_UNIX) as alive, socket.socket(socket.AF_UNIX) as dead:
        alive.bind(str(tmp_path / "X7"))
        alive.listen()
        dead.bind(str(tmp_path / "X8"))
        left = leftovers.left()
    os.close(held)
    assert left == [str(tmp_path / "X8"), str(tmp_path / "webgym-chromium-2-a")]


def test_memory_of_this_process_is_seen() -> None:
    before = tree_bytes(descendants=False)
    block = bytearray(os.urandom(30_000_000))
    assert tree_bytes(descendants=False) - before > 20_000_000
    assert tree_bytes() > len(block)
    assert tree_bytes(2**22 + 1) == 0


def test_memory_without_files_is_what_the_process_itself_made() -> None:
    before = tree_bytes(descendants=False, files=False)
    # The interpreter and the libraries at least are pages of files.
    assert tree_bytes(descendants=False) - before > 1_000_000
    with mmap.mmap(-1, 30_000_000) as shared:
        shared[:] = b"x" * len(shared)
        assert tree_bytes(descendants=False, files=False) - before > 20_000_000


async def test_the_server_waits_and_serves_each_page() -> None:
    loop = asyncio.get_running_loop()
    async with local_server(0.05) as address:
        host, port = address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for path, answer in (("17", b"HTTP/1.1 200"), ("none", b"HTTP/1.1 404")):
            start = loop.time()
            writer.write(f"GET /{path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert loop.time() - start >= 0.05
            assert head.startswith(answer)
            length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            assert body == (page(17) if path == "17" else b"no such page")
        writer.close()


def test_the_rate_over_all_pages_gives_each_as_many_clicks() -> None:
    # Ten clicks a second on one page and 40 on the other: 80 clicks, half on each, take 4 + 1 s.
    assert overall_rate([10.0, 40.0]) == pytest.approx(80 / 5)
    assert overall_rate([7.0]) == 7.0
    assert overall_rate([7.0, 0.0]) == 0.0
