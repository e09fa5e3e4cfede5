"""The far side of a connection: names are looked up once, and the addresses that were judged are connected to."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

__all__ = ["Resolver", "Streams", "dial", "is_here"]

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

LOOKUPS = 32
"""Names looked up at the same time."""
LOOKUP_SECONDS = 15.0
DIAL_SECONDS = 15.0
"""For all addresses of a name together."""
STAGGER_SECONDS = 0.25
"""How long an address may take before the next one is tried beside it, as browsers do it themselves."""


class Resolver:
    """Looks names up in threads of its own: names that take long hold up other names at worst, nothing else."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(LOOKUPS, "lookup")

    async def __call__(self, host: str, port: int) -> list[str]:
        """The addresses of a host, in the order in which they are to be tried.

        Raises:
            OSError: It has none, or none was told in time.
        """
        with contextlib.suppress(OSError, UnicodeError):
            return _addresses(host, port, socket.AI_NUMERICHOST)
        try:
            looking = asyncio.get_running_loop().run_in_executor(self._threads, _addresses, host, port)
            async with asyncio.timeout(LOOKUP_SECONDS):
                return await looking
        except UnicodeError as error:
            raise OSError(f"no host can be called {host:.200}") from error
        except RuntimeError as error:
            raise OSError("closed, or the interpreter is ending") from error

    def close(self) -> None:
        """Look up nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _addresses(host: str, port: int, flags: int = 0) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def is_here(address: str) -> bool:
    """Whether an address is one of this machine's own, public ones too; nothing is sent to find out."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # The kernel speaks to an own address from that very address.
            probe.connect((address, 9))
            return ipaddress.ip_address(probe.getsockname()[0]) == ipaddress.ip_address(address)
    except (OSError, ValueError):
        return False


async def dial(addresses: Sequence[str], port: int) -> Streams:
    """Connect to the first of some addresses that answers.

    It takes addresses since a name, looked up again, could stand for another one by now.

    Raises:
        OSError: None does, or not in time.
    """
    waiting = iter(addresses)
    pending: set[asyncio.Task[Streams]] = set()
    try:
        async with asyncio.timeout(DIAL_SECONDS):
            while True:
                address = next(waiting, None)
                if address is not None:
                    pending.add(asyncio.ensure_future(asyncio.open_connection(address, port)))
                elif not pending:
                    raise ConnectionError("no address answers")
                patience = None if address is None else STAGGER_SECONDS
                done, pending = await asyncio.wait(
                    pending, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
                answered = [each.result() for each in done if each.exception() is None]
                for _, late in answered[1:]:
                    late.transport.abort()
                if answered:
                    return answered[0]
    finally:
        for each in pending:
            if not each.cancel() and each.exception() is None:
                each.result()[1].transport.abort()
