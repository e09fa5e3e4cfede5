"""The DevTools client against a transport in memory: who is sent when, what fails how, what is sent again."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from io import FileIO
from typing import Any

import pytest

from webgym_workers.browser.cdp import CDPClient, CDPSession
from webgym_workers.browser.command import BYPASS, MAX_IN_FLIGHT, REPEATABLE, Priority
from webgym_workers.browser.faults import (
    BrowserGone,
    CDPError,
    CDPTimeout,
    ConnectionLost,
    TargetClosed,
)
from webgym_workers.browser.pipe import PipeTransport
from webgym_workers.browser.transport import Transport


class MemoryTransport:
    """Keeps what is sent; answers when the test says so, or at once by ``reply``."""

    def __init__(self, client: CDPClient) -> None:
        self.client = client
        self.sent: list[dict[str, Any]] = []
        self.closing = False
        self.reply: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda message: None
        client.use(self)

    def write(self, message: str) -> None:
        content = json.loads(message)
        self.sent.append(content)
        answer = self.reply(content)
        if answer is not None:
            self.client.loop.call_soon(self.client.received, json.dumps({"id": content["id"], **answer}))

    def abort(self) -> None:
        self.closing = True

    def answer(self, index: int, **answer: Any) -> None:
        self.client.received(json.dumps({"id": self.sent[index]["id"], **(answer or {"result": {}})}))

    def event(self, method: str, **params: Any) -> None:
        self.client.received(json.dumps({"method": method, "params": params}))

    @property
    def methods(self) -> list[str]:
        return [message["method"] for message in self.sent]


@pytest.fixture
async def wire() -> MemoryTransport:
    return MemoryTransport(CDPClient(asyncio.get_running_loop()))


@pytest.fixture
async def tab(wire: MemoryTransport) -> CDPSession:
    return wire.client.session("tab")


async def test_a_message_is_what_the_protocol_says(wire: MemoryTransport, tab: CDPSession) -> None:
    tab.post("Runtime.evaluate", {"expression": '"ä\ud800"'})
    wire.client.browser.post("Browser.getVersion")
    assert wire.sent == [
        {
            "id": 1,
            "method": "Runtime.evaluate",
            "sessionId": "tab",
            "params": {"expression": '"ä\ud800"'},
        },
        {"id": 2, "method": "Browser.getVersion"},
    ]


async def test_no_more_than_five_of_a_tab_are_in_flight(wire: MemoryTransport, tab: CDPSession) -> None:
    for number in range(MAX_IN_FLIGHT + 2):
        tab.post("Runtime.evaluate", {"expression": str(number)})
    assert len(wire.sent) == MAX_IN_FLIGHT
    # Neither another tab nor the browser itself waits for this one.
    wire.client.session("other").post("Page.enable")
    wire.client.browser.post("Browser.getVersion")
    assert len(wire.sent) == MAX_IN_FLIGHT + 2
    wire.answer(2)
    assert wire.sent[-1]["params"] == {"expression": str(MAX_IN_FLIGHT)}
    assert len(wire.sent) == MAX_IN_FLIGHT + 3


@pytest.mark.parametrize("method", sorted(BYPASS))
async def test_what_unblocks_a_tab_overtakes_a_full_queue(
    wire: MemoryTransport, tab: CDPSession, method: str
) -> None:
    for _ in range(MAX_IN_FLIGHT + 1):
        tab.post("Runtime.evaluate")
    tab.post(method)
    assert wire.methods == ["Runtime.evaluate"] * MAX_IN_FLIGHT + [method]
    # It takes nobody's place, coming or going.
    wire.answer(-1)
    assert len(wire.sent) == MAX_IN_FLIGHT + 1


async def test_the_queue_goes_by_priority_then_by_order(wire: MemoryTransport, tab: CDPSession) -> None:
    for _ in range(MAX_IN_FLIGHT):
        tab.post("Runtime.evaluate")
    tab.post("Performance.getMetrics", priority=Priority.LOW)
    tab.post("Input.first")
    tab.post("Input.second")
    tab.post("Page.important", priority=Priority.HIGH)
    for index in range(4):
        wire.answer(index)
    assert wire.methods[MAX_IN_FLIGHT:] == [
        "Page.important",
        "Input.first",
        "Input.second",
        "Performance.getMetrics",
    ]


async def test_every_command_has_a_deadline_which_counts_in_the_queue_too(
    wire: MemoryTransport, tab: CDPSession
) -> None:
    late = [asyncio.ensure_future(tab.call("Page.navigate", timeout=0.02)) for _ in range(MAX_IN_FLIGHT + 1)]
    done = await asyncio.gather(*late, return_exceptions=True)
    assert all(isinstance(error, CDPTimeout) for error in done)
    assert str(done[0]) == "Page.navigate: no answer in 0.02 s"
    assert len(wire.sent) == MAX_IN_FLIGHT
    # The browser is still at work on five: the cap counts what it has, not what we wait for.
    tab.post("Page.next")
    assert "Page.next" not in wire.methods
    wire.answer(0)
    assert wire.methods[-1] == "Page.next"
    # The one that ran out of time in the queue was never sent.
    assert wire.methods.count("Page.navigate") == MAX_IN_FLIGHT


async def test_a_safe_command_is_sent_up_to_three_times_more(wire: MemoryTransport, tab: CDPSession) -> None:
    with pytest.raises(CDPTimeout):
        await tab.call("Page.getNavigationHistory", timeout=0.01)
    assert wire.methods == ["Page.getNavigationHistory"] * 4
    wire.sent.clear()
    for index in range(4):
        wire.client.received(json.dumps({"id": index + 1, "result": {}}))
    answers = iter([None, {"error": {"code": -32000, "message": "Cannot find context with specified id"}}])
    wire.reply = lambda message: next(answers, {"result": {"value": 7}})
    answer = await tab.call("Runtime.evaluate", {"expression": "7"}, timeout=0.05, repeatable=True)
    assert answer == {"value": 7}
    assert len(wire.sent) == 3


@pytest.mark.parametrize(
    "method", ["Input.dispatchMouseEvent", "Input.insertText", "Page.navigate", "Runtime.evaluate"]
)
async def test_what_acts_is_never_sent_twice(wire: MemoryTransport, tab: CDPSession, method: str) -> None:
    assert method not in REPEATABLE
    with pytest.raises(CDPTimeout):
        await tab.call(method, timeout=0.01)
    assert wire.methods == [method]


async def test_a_refusal_is_final(wire: MemoryTransport, tab: CDPSession) -> None:
    wire.reply = lambda message: {"error": {"code": -32602, "message": "Invalid parameters"}}
    with pytest.raises(CDPError, match=r"Page\.getLayoutMetrics: Invalid parameters") as refused:
        await tab.call("Page.getLayoutMetrics")
    assert refused.value.code == -32602
    assert len(wire.sent) == 1


async def test_a_cancelled_caller_leaves_no_orphan(wire: MemoryTransport, tab: CDPSession) -> None:
    callers = [asyncio.ensure_future(tab.call("Runtime.evaluate")) for _ in range(MAX_IN_FLIGHT + 1)]
    await asyncio.sleep(0)
    for caller in callers:
        caller.cancel()
    assert all(
        isinstance(end, asyncio.CancelledError)
        for end in await asyncio.gather(*callers, return_exceptions=True)
    )
    for index in range(MAX_IN_FLIGHT):
        wire.answer(index)
    assert len(wire.sent) == MAX_IN_FLIGHT, "a command that waited is not sent for nobody"
    assert not wire.client.pending
    assert not tab._queue


async def test_the_end_of_a_tab_or_of_the_browser_is_told_to_all_who_wait(wire: MemoryTransport) -> None:
    client = wire.client
    one, other = client.session("one"), client.session("other")
    waiting = [one.post("A.a") for _ in range(MAX_IN_FLIGHT + 1)]
    event = one.waiter()
    still = other.post("B.b")
    wire.event("Target.detachedFromTarget", sessionId="one")
    for future in (*waiting, event):
        with pytest.raises(TargetClosed):
            await future
    assert not still.done()
    client.lost(wire, "the browser ended")
    with pytest.raises(BrowserGone, match="the browser ended"):
        await still
    with pytest.raises(BrowserGone):
        await other.call("C.c")
    assert client.closed.done()
    assert not client.pending


async def test_messages_are_cut_at_null_bytes_however_they_arrive() -> None:
    class Sink:
        def __init__(self) -> None:
            self.messages: list[str] = []
            self.why = ""

        def received(self, message: str) -> None:
            self.messages.append(message)

        def lost(self, transport: Transport, why: str) -> None:
            self.why = why

    sink = Sink()
    pipe = PipeTransport(sink)
    stream = b'{"a":1}\0{"b":"\xc3\xa4"}\0{"c":2}\0'
    for size in (1, 3, len(stream)):
        sink.messages.clear()
        for start in range(0, len(stream), size):
            pipe.data_received(stream[start : start + size])
        assert sink.messages == ['{"a":1}', '{"b":"ä"}', '{"c":2}']
    read, write = os.pipe()
    pipe.listen(FileIO(read, "rb"))
    os.write(write, stream[:-2])
    os.write(write, stream[-2:])
    os.close(write)
    async with asyncio.timeout(10):
        while not sink.why:
            await asyncio.sleep(0)
    assert sink.messages == ['{"a":1}', '{"b":"ä"}', '{"c":2}'] * 2
    assert sink.why == "the browser ended"


async def test_a_lost_connection_fails_what_is_pending_and_holds_what_comes() -> None:
    lost: list[str] = []
    client = CDPClient(asyncio.get_running_loop(), recover=lambda client, why: lost.append(why))
    wire = MemoryTransport(client)
    wire.event("Target.attachedToTarget", sessionId="tab", targetInfo={"targetId": "T"})
    tab, frame = client.session("tab"), client.session("frame")
    click = tab.post("Input.dispatchMouseEvent")
    read = asyncio.ensure_future(tab.call("Page.getNavigationHistory"))
    await asyncio.sleep(0)
    client.lost(wire, "cut")
    assert lost == ["cut"]
    with pytest.raises(ConnectionLost):
        await click
    # The tab's session waits; that of a frame in it is replaced by its tab's.
    later = tab.post("Runtime.evaluate")
    with pytest.raises(TargetClosed):
        await frame.call("Runtime.evaluate")
    again = MemoryTransport(client)
    client.reattach(tab, "tab2", "T")
    assert again.sent == []
    tab.resume()
    assert again.sent[0] == {"id": again.sent[0]["id"], "method": "Runtime.evaluate", "sessionId": "tab2"}
    async with asyncio.timeout(5):
        while len(again.sent) < 2:
            await asyncio.sleep(0.01)
    # What is safe to repeat was, the click was not.
    assert again.methods == ["Runtime.evaluate", "Page.getNavigationHistory"]
    again.answer(0)
    again.answer(1, result={"currentIndex": 0})
    assert await read == {"currentIndex": 0}
    assert await later == {}
    # The old transport has no say any more.
    client.lost(wire, "late news")
    assert lost == ["cut"]
