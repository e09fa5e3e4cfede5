"""A web server for benches, in a process of its own: pages that take as long as pages of a far-away server do, and
answers that take as long as their address says.

``python -m webgym_workers.benches.local_server --latency 0.3`` prints its address and serves until its stdin ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

from webgym.errors import RunError

__all__ = ["local_server", "page"]

_ROWS = 120
_START_SECONDS = 60.0


def page(number: int) -> bytes:
    """A page of text, links and a form, 20 kB, another one for each number."""
    rows = "".join(
        f"<tr><td>{i}</td><td><a href='/{number + i}'>Article {number + i}</a></td>"
        f"<td>{(number * 31 + i * 17) % 997} words about {'lamps chairs gardens windows'.split()[i % 4]}</td></tr>"
        for i in range(_ROWS)
    )
    text = (
        f"<!doctype html><meta charset=utf-8><title>Page {number}</title>"
        "<style>body{font:15px/1.4 sans-serif;margin:2em}td{padding:2px 12px;border-bottom:1px solid #ddd}"
        "header{background:linear-gradient(90deg,#246,#69a);color:#fff;padding:1em}</style>"
        f"<header><h1>Page {number}</h1></header><form><input name=q value='{number}'><button>Search</button></form>"
        f"<table>{rows}</table><script>document.title += ', ' + document.links.length + ' links'</script>"
    )
    return text.encode()


def content(path: str) -> bytes | None:
    """What is at a path without its slashes at the ends; None where nothing is."""
    if path.isdecimal():
        return page(int(path))
    if path == "far":
        return (files("webgym_workers.benches") / "pages" / "far.html").read_bytes()
    return b"" if path.startswith("after/") else None


def extra_seconds(path: str) -> float:
    """How much later a path is answered that asks for it: ``after/250`` by 250 ms."""
    milliseconds = path.removeprefix("after/")
    return int(milliseconds) / 1e3 if path.startswith("after/") and milliseconds.isdecimal() else 0.0


@asynccontextmanager
async def local_server(latency: float) -> AsyncIterator[str]:
    """A server in a process of its own, which ends with the block.

    Args:
        latency: Seconds that each answer waits.

    Yields:
        Its address, without a slash at the end.

    Raises:
        RunError: It did not start.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__, "--latency", str(latency)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_SECONDS):
            line = await process.stdout.readline()
        if not line:
            raise RunError("the bench's web server did not start; its error is above")
        yield line.decode().strip()
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(5.0):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _serve(latency: float) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Browsers keep connections open, and drop them without a word.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                path = request.split(b" ", 2)[1].decode("ascii", "replace").strip("/")
                # This wait is what the server is for: the way there and back.
                await asyncio.sleep(latency + extra_seconds(path))
                found = content(path)
                known = found is not None
                body = b"no such page" if found is None else found
                head = f"HTTP/1.1 {'200 OK' if known else '404 Not Found'}\r\nContent-Length: {len(body)}\r\n"
                head += "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(prog="webgym-bench-server")
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS")
    asyncio.run(_serve(parser.parse_args().latency))


if __name__ == "__main__":
    main()
