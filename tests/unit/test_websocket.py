"""Where a remote browser's websocket is, and what people are told when it is not there."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from pydantic import ValidationError

from webgym.errors import BrowserError
from webgym.spec import Browser
from webgym_workers.browser.cdp import CDPClient
from webgym_workers.browser.reconnect import backoff
from webgym_workers.browser.websocket import dial, place_of, websocket_url


@pytest.fixture
def version() -> Iterator[dict[str, str]]:
    """A server that tells what a browser tells, or ``body`` with ``status``."""
    told = {"webSocketDebuggerUrl": "ws://inside:1/devtools/browser/7"}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = self.path == "/json/version"
            self.send_response(int(told.get("status", "200")) if found else 404)
            body = told.get("body", json.dumps(told)).encode()
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    told["at"] = f"127.0.0.1:{server.server_port}"
    yield told
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_browser_is_asked_for_its_websocket_but_reached_by_the_name_it_was_given(
    version: dict[str, str],
) -> None:
    assert websocket_url(f"http://{version['at']}", 5) == f"ws://{version['at']}/devtools/browser/7"
    assert websocket_url("wss://h/devtools/browser/1?token=x", 5) == "wss://h/devtools/browser/1?token=x"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("<html>", "200", "is no browser: its /json/version names no webSocketDebuggerUrl"),
        ("[]", "200", "is no browser"),
        ("Host header is specified", "500", r"does not tell its websocket: Host header is specified \(500\)"),
    ],
)
def test_what_is_no_browser_is_one_clear_line(
    version: dict[str, str], body: str, status: str, words: str
) -> None:
    version |= {"body": body, "status": status}
    with pytest.raises(BrowserError, match=words):
        websocket_url(f"http://{version['at']}", 5)


@pytest.mark.parametrize("endpoint", ["ftp://h", "localhost:9222", "http://", ""])
def test_what_is_no_address_is_one_clear_line(endpoint: str) -> None:
    with pytest.raises(BrowserError, match="must be a ws://, wss://, http:// or https:// address"):
        websocket_url(endpoint, 5)


async def test_a_server_without_websockets_is_refused(version: dict[str, str]) -> None:
    client = CDPClient(asyncio.get_running_loop())
    with pytest.raises(BrowserError, match=r"cannot reach the browser at ws://127\.0\.0\.1:\d+: .*404"):
        await dial(client, f"ws://{version['at']}/devtools", 5)
    # Nothing listens, and a server that says nothing.
    silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    with pytest.raises(BrowserError, match=r"no answer in 0\.1 s"):
        await dial(client, f"ws://127.0.0.1:{port}", 0.1)
    silent.close()
    with pytest.raises(BrowserError, match="refused"):
        await dial(client, f"ws://127.0.0.1:{port}", 5)


def test_secrets_of_an_address_are_not_told() -> None:
    assert place_of("wss://user:secret@h:1/devtools?token=secret") == "wss://h:1"


def test_the_pauses_between_tries_grow_up_to_a_bound() -> None:
    assert list(itertools.islice(backoff(0.1, 1.0), 6)) == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@pytest.mark.parametrize("endpoint", ["h:1", "ws://", "ws://u:p@h:1/x", "wss://h/x?token=1", "ftp://h"])
def test_a_manifest_takes_addresses_without_secrets_only(endpoint: str) -> None:
    with pytest.raises(ValidationError):
        Browser.model_validate({"endpoint": endpoint})
