"""Pages of a real browser behind the egress proxy, before a server that must not hear of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from webgym_workers.browser.egress import EgressPolicy
from webgym_workers.browser.faults import EgressGone, NavigationError
from webgym_workers.browser.options import BrowserOptions
from webgym_workers.browser.pool import BrowserPool
from webgym_workers.browser.proxy import EgressProxy
from webgym_workers.env import WebEnv
from webgym_workers.reach import load_page
from webgym_workers.tasks.task import Outcome, Task

PAGE = """<iframe src="{s}/frame"></iframe><img src="{s}/image"><script>
const done = [];
const ended = node => new Promise(end => {{ node.onerror = node.onload = node.onclose = end; }});
const script = document.createElement("script"); script.src = "{s}/script"; done.push(ended(script));
document.head.append(script);
done.push(ended(new WebSocket("{s}/socket".replace("http", "ws"))));
done.push(fetch("{s}/fetch", {{mode: "no-cors"}}).catch(() => 0));
done.push(fetch("/redirect", {{mode: "no-cors"}}).catch(() => 0));
for (const host of ["localhost", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::ffff:127.0.0.1]", "0.0.0.0"])
  done.push(fetch(`http://${{host}}:{port}/form`, {{mode: "no-cors"}}).catch(() => 0));
window.open("{s}/popup");
const over = Promise.all(done);
</script>"""


@asynccontextmanager
async def _server(answer: dict[str, str], heard: list[str]) -> AsyncIterator[int]:
    """Answers GET by path (a redirect where it begins with http), and notes every connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append("(connection)")
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
            heard[-1] = path
            body = answer.get(path, "")
            kind = b"text/javascript" if path.endswith(".js") else b"text/html"
            if body.startswith("http"):
                writer.write(f"HTTP/1.1 302 Found\r\nLocation: {body}\r\nContent-Length: 0\r\n\r\n".encode())
            else:
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind, len(body))
                )
                writer.write(body.encode())
            await writer.drain()
        except (EOFError, OSError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_a_page_reaches_its_own_server_and_no_other_private_one() -> None:
    secret: list[str] = []
    own: list[str] = []
    answers: dict[str, str] = {}
    async with _server({}, secret) as secret_port, _server(answers, own) as own_port:
        hidden = f"http://127.0.0.1:{secret_port}"
        answers |= {"/": PAGE.format(s=hidden, port=secret_port), "/redirect": f"{hidden}/redirected"}
        proxy = EgressProxy(EgressPolicy(), [f"http://127.0.0.1:{own_port}/"])
        async with (
            BrowserPool(BrowserOptions(action_timeout=20.0), 1, egress=proxy) as pool,
            pool.page() as page,
        ):
            await page.navigate(f"http://127.0.0.1:{own_port}/")
            assert await page.evaluate("over.then(all => all.length)", timeout=20.0) == 11
        assert proxy.refused >= 11
    assert "/redirect" in own
    assert secret == []


SIDE_DOORS = """<script>
const worker = navigator.serviceWorker.register("/worker.js")
  .then(() => navigator.serviceWorker.ready);
const peer = new RTCPeerConnection({{iceServers: [{{urls: "stun:127.0.0.1:{udp}"}}]}});
peer.createDataChannel("any");
const gathered = new Promise(end => {{
  peer.onicegatheringstatechange = () => peer.iceGatheringState == "complete" && end();
}});
const transport = new WebTransport("https://127.0.0.1:{udp}").ready.catch(() => 0);
const over = peer.createOffer().then(offer => peer.setLocalDescription(offer))
  .then(() => Promise.all([worker, gathered, transport])).then(all => all.length);
</script>"""
WORKER = "oninstall = event => event.waitUntil(fetch('{s}/worker', {{mode: 'no-cors'}}).catch(() => 0));"


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, heard: list[str]) -> None:
        self._heard = heard

    def datagram_received(self, data: bytes, address: object) -> None:
        self._heard.append("(datagram)")


async def test_side_doors_and_what_a_refused_page_ends_as() -> None:
    secret: list[str] = []
    own: list[str] = []
    answers: dict[str, str] = {}
    loop = asyncio.get_running_loop()
    hidden_pages = dict.fromkeys(("/named", "/found"), "<link rel=icon href=data:,>")
    async with _server(hidden_pages, secret) as secret_port, _server(answers, own) as own_port:
        udp, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(secret), ("127.0.0.1", 0))
        hidden = f"http://127.0.0.1:{secret_port}"
        server = f"http://127.0.0.1:{own_port}"
        answers |= {
            "/": SIDE_DOORS.format(udp=udp.get_extra_info("sockname")[1]),
            "/worker.js": WORKER.format(s=hidden),
            "/away": f"{hidden}/away",
            "/away-tls": f"https://127.0.0.1:{secret_port}/away",
        }
        proxy = EgressProxy(EgressPolicy("Offline"), [f"{server}/"])
        async with (
            BrowserPool(BrowserOptions(action_timeout=20.0), 1, egress=proxy) as pool,
            pool.page() as page,
        ):
            for path in ("/away", "/away-tls"):
                with pytest.raises(
                    NavigationError, match=r"127\.0\.0\.1 is refused: browser\.egress: Offline"
                ) as refused:
                    await load_page(page, server + path, 20.0, proxy)
                assert refused.value.url.endswith(f":{secret_port}/away")
            assert pool.restarts == {}
            await load_page(page, f"{server}/", 20.0, proxy)
            assert await page.evaluate("over", timeout=20.0) == 3
            await page.evaluate("location.href = 'file:///etc/passwd'")
            assert await page.evaluate("location.href") == f"{server}/"

            # Named to the proxy only now, so it is not among what goes past it: without the proxy it is not reached.
            await load_page(page, f"{hidden}/named", 20.0, proxy)
            assert secret.pop() == "/named"

            # The proxy ends, and somebody else, who answers nothing, has its port until it is back.
            assert proxy._server is not None
            assert proxy._socket is not None
            proxy._socket.close()
            proxy._server.close()
            port = urlsplit(proxy.address).port
            async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port):
                for path in ("/lost", "/still-lost"):
                    with pytest.raises(EgressGone, match="does not answer"):
                        await load_page(page, hidden + path, 20.0, proxy)
            async with asyncio.timeout(20.0):
                while not proxy.reopened:
                    await asyncio.sleep(0.05)
            assert secret == []
            await load_page(page, f"{hidden}/found", 20.0, proxy)
            assert secret.pop() == "/found"
            assert pool.restarts == {}

            await proxy.close()
            with pytest.raises(EgressGone, match="does not answer"):
                await load_page(page, f"{hidden}/closed", 20.0, proxy)
        udp.close()
    assert secret == []


class Served(Task):
    """One page of a local server for each seed."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports

    def start_page(self, seed: int) -> str:
        return f"http://localhost:{self._ports[seed]}/"

    def judge(self, probe: object) -> Outcome:
        return Outcome()


async def test_an_environment_reaches_each_seeds_start_page() -> None:
    own: list[str] = []
    async with _server({"/": "one"}, own) as first, _server({"/": "two"}, own) as second:
        env = WebEnv("test_page_egress:Served", params={"ports": [first, second]})
        try:
            for seed in (0, 1):
                await asyncio.to_thread(env.reset, options={"page_seed": seed})
        finally:
            await asyncio.to_thread(env.close)
    assert own.count("/") == 2
