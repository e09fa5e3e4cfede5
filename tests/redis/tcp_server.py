"""A server on TCP with users, and TLS in front of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from webgym.embedded import find_server


def server_under_test() -> Path:
    """WEBGYM_TEST_REDIS_SERVER, to try other servers than the one that an installation brings."""
    return Path(os.environ.get("WEBGYM_TEST_REDIS_SERVER") or find_server())


@dataclass(frozen=True)
class External:
    """A server on TCP: user bob may use webgym keys, eve may only read, the default user needs a password."""

    port: int
    tls_port: int
    mutual_port: int
    """TLS that asks for a client certificate."""
    certificates: Path

    def url(self, scheme: str = "redis", port: int | None = None, credentials: str = "") -> str:
        return f"{scheme}://{credentials}127.0.0.1:{port or (self.port if scheme == 'redis' else self.tls_port)}/0"


PASSWORD = "s3cr3t/@:word"
ACL = f"""
user default on >{PASSWORD} ~* &* +@all
user bob on >bobs-password ~webgym:* &webgym:* +@all -@admin -@dangerous +info
user eve on >eves-password ~webgym:* &webgym:* +@read +@connection
user mallory on >mallorys-password ~other:* &* +@all
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert server.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server does not listen"
            time.sleep(0.01)


def make_certificates(folder: Path) -> None:
    """ca.crt; server.crt for 127.0.0.1 and redis.example; client.crt; other.crt, an authority nobody uses."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl program is not installed")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], check=True, capture_output=True, cwd=folder)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ca", "other"):
        names = ("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt", "-days", "30")
        run("req", "-x509", *key, *names)
    for name, alternative in (("server", "IP:127.0.0.1,DNS:redis.example"), ("named", "DNS:redis.example")):
        sign(run, key, name, alternative)
    sign(run, key, "client", "DNS:client")


def sign(run, key, name: str, alternative: str) -> None:
    run("req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr",
        "-addext", f"subjectAltName={alternative}")  # fmt: skip
    run("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
        "-out", f"{name}.crt", "-days", "30", "-copy_extensions", "copy")  # fmt: skip


@contextlib.contextmanager
def tls_front(folder: Path, port: int, *, mutual: bool = False, certificate: str = "server") -> Iterator[int]:
    """Ends TLS and passes bytes on to a plain port; the embedded server is built without TLS of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{certificate}.crt", folder / f"{certificate}.key")
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(folder / "ca.crt")
    started: list[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = []
    ready = threading.Event()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    async def main() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        loop.set_exception_handler(lambda *_: None)  # Failed handshakes are what some tests are about.
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        started.append((loop, stop, server.sockets[0].getsockname()[1]))
        ready.set()
        await stop.wait()
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    loop, stop, front = started[0]
    try:
        yield front
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(5)
