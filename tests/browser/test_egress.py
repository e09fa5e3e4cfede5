"""Pages of a real browser behind the egress proxy, before a server that must not hear of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from webgym_workers.browser.egress import EgressPolicy
from webgym_workers.browser.options import BrowserOptions
from webgym_workers.browser.pool import BrowserPool
from webgym_workers.browser.proxy import EgressProxy

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
            if body.startswith("http"):
                writer.write(f"HTTP/1.1 302 Found\r\nLocation: {body}\r\nContent-Length: 0\r\n\r\n".encode())
            else:
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body)
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
        policy = EgressPolicy(own=frozenset({("127.0.0.1", own_port)}))
        async with EgressProxy(policy) as proxy:
            options = BrowserOptions(proxy=proxy.address, action_timeout=20.0)
            async with BrowserPool(options, 1) as pool, pool.page() as page:
                await page.navigate(f"http://127.0.0.1:{own_port}/")
                assert await page.evaluate("over.then(all => all.length)", timeout=20.0) == 11
            assert proxy.refused >= 11
    assert "/redirect" in own
    assert secret == []
