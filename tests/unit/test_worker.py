"""What a worker says of itself, summed up from its browser processes."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from webgym.program import Drain, ProgramContext
from webgym.schema import observation_schema
from webgym.telemetry import Numbers
from webgym_workers.browser_process import BrowserProcess, Seating
from webgym_workers.slots import ObservationSlots, channel
from webgym_workers.worker import _ordinal, memory_by_browser, total_figures


def test_figures_of_browser_processes_are_summed_and_what_cannot_be_is_left_out() -> None:
    first = {
        "role": "actor",
        "pid": 7,
        "time": 1.5,
        "version": 3,
        "browsers": 2,
        "steps": 10,
        "restarts": {"a": 1},
    }
    second = {"role": "actor", "pid": 8, "time": 2.5, "version": 4, "browsers": 1, "steps": 5, "faults": 2}
    reports = [json.dumps(first).encode(), json.dumps(second), None, b""]
    assert total_figures(reports) == {"browsers": 3, "steps": 15, "faults": 2}
    assert total_figures([]) == {}


@pytest.mark.parametrize(
    "damaged",
    [
        b"", b"{", b"\xff\xfe", "null", "[1]", "7", '"steps"', "[" * 100_000,
        '{"steps": "many", "memory_by_browser": [3]}',
        '{"steps": NaN, "faults": Infinity, "memory_by_browser": {"0": "x", "1": NaN}}',
        f'{{"steps": 1{"0" * 400}, "memory_by_browser": {{"0": -1{"0" * 400}}}}}', f'{{"steps": {"9" * 5000}}}',
    ],
)  # fmt: skip
def test_a_damaged_report_is_left_out_and_the_others_count(damaged: bytes | str) -> None:
    sound = '{"steps": 5, "memory_by_browser": {"2": 7}}'
    assert total_figures([damaged, sound]) == {"steps": 5}
    assert memory_by_browser([damaged, sound]) == {"2": 7}


@pytest.mark.parametrize(
    ("name", "place"), [("worker-0", 0), ("demo-worker-12", 12), ("worker", 0), ("7", 7)]
)
def test_a_workers_place_is_the_number_at_the_end_of_its_name(name: str, place: int) -> None:
    assert _ordinal(name) == place


def test_memory_is_told_for_each_browser_of_the_worker() -> None:
    reports = [
        json.dumps({"memory_by_browser": {"0": 5, "1": 6}}).encode(),
        None,
        '{"memory_by_browser": {"2": 7}}',
    ]
    assert memory_by_browser(reports) == {"0": 5, "1": 6, "2": 7}
    registry = CollectorRegistry()
    numbers = Numbers({"program": "worker-0"}, registry, each={"browser_resident_bytes": "browser"})
    numbers.set({"steps": 3, "browser_resident_bytes": memory_by_browser(reports)})
    labels = {"program": "worker-0", "browser": "2"}
    assert registry.get_sample_value("webgym_browser_resident_bytes", labels) == 7
    assert registry.get_sample_value("webgym_steps", {"program": "worker-0"}) == 3


async def test_what_pages_were_refused_is_in_the_workers_metrics(tmp_path: Path) -> None:
    manifest = tmp_path / "run.yaml"
    manifest.write_text(
        "apiVersion: webgym.io/v1alpha1\nkind: WebGymRun\nmetadata: {name: demo}\n"
        "spec: {task: {name: miniwob.click-button}, browser: {egress: Offline}}\n"
    )
    context = ProgramContext(manifest, "uid", "unix:///none", tmp_path, "worker-0")
    memory = ObservationSlots.create(observation_schema(context.manifest.spec.observation), 1)
    theirs, ours = channel()
    try:
        process = BrowserProcess(context, Drain(), Seating(0, 1, 0, 1), memory, 1, ours)
        proxy = process._pool.egress
        assert proxy is not None
        async with proxy, asyncio.timeout(20.0):
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(proxy.address).port)
            writer.write(b"GET http://10.0.0.1/ HTTP/1.1\r\n\r\n")
            assert b" 403 " in await reader.readline()
            writer.close()
        registry = CollectorRegistry()
        Numbers({"program": "worker-0"}, registry).set(total_figures([json.dumps(process._figures())]))
        await process._close()
    finally:
        theirs.close()
        ours.close()
        os.close(memory)
    lines = generate_latest(registry).decode().splitlines()
    assert 'webgym_egress_refused{program="worker-0"} 1.0' in lines
    assert 'webgym_egress_reopened{program="worker-0"} 0.0' in lines
