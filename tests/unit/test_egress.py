"""What pages may reach."""

from __future__ import annotations

import asyncio
import ipaddress
from urllib.parse import urlsplit

import pytest

from webgym_workers.browser.egress import EgressPolicy, covers, is_public, place_of, refusal
from webgym_workers.browser.proxy import EgressProxy

PRIVATE = (
    "10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 100.127.255.255 169.254.169.254 127.0.0.1 127.9.9.9 "
    "0.0.0.0 0.1.2.3 224.0.0.1 240.0.0.1 255.255.255.255 192.0.2.1 198.18.0.1 :: ::1 fc00::1 fd12::1 fe80::1 "
    "fe80::1%eth0 fec0::1 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::7f00:1 64:ff9b::a00:1 64:ff9b::7f00:1 "
    "64:ff9b:1::808:808 2002:a00:1:: 2002:7f00:1:: 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:db8::1 "
    "168.63.129.16 ::ffff:168.63.129.16"
).split()
PUBLIC = (
    "8.8.8.8 1.1.1.1 172.15.0.1 172.32.0.1 100.63.0.1 100.128.0.1 2606:4700::1111 ::ffff:8.8.8.8 "
    "64:ff9b::808:808 2002:808:808::1"
).split()


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))
    assert "private" in (refusal(EgressPolicy(), "a.example", 80, [address]) or "")


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))
    assert refusal(EgressPolicy(), "a.example", 80, [address]) is None


def test_one_private_address_among_public_ones_refuses_the_name() -> None:
    assert refusal(EgressPolicy(), "a.example", 80, ["8.8.8.8", "10.0.0.1"])


def test_this_machine_is_refused_at_its_public_addresses_too() -> None:
    policy = EgressPolicy()
    assert "very machine" in (refusal(policy, "a.example", 80, ["8.8.8.8"], here=["8.8.8.8"]) or "")
    assert "very machine" in (
        refusal(policy, "a.example", 80, ["1.1.1.1", "8.8.8.8"], here=["8.8.8.8"]) or ""
    )
    own = policy.with_own(("shop.example", 80), ["8.8.8.8"])
    assert refusal(own, "shop.example", 80, ["8.8.8.8"], here=["8.8.8.8"]) is None
    assert refusal(own, "shop.example", 81, ["8.8.8.8"], here=["8.8.8.8"])


def test_what_is_no_address_is_refused() -> None:
    assert refusal(EgressPolicy(), "a.example", 80, ["8.8.8.8.8"])


@pytest.mark.parametrize("mode", ["Public", "TaskSites", "Offline"])
def test_the_tasks_own_server_is_reached_by_its_very_host_and_port(mode: str) -> None:
    policy = EgressPolicy(mode).with_own(("10.0.0.7", 8000), ["10.0.0.7"])  # type: ignore[arg-type]
    assert refusal(policy, "10.0.0.7", 8000, ["10.0.0.7"]) is None
    assert refusal(policy, "10.0.0.7", 8001, ["10.0.0.7"])
    assert refusal(policy, "shop.example", 8000, ["10.0.0.7"])


@pytest.mark.parametrize("given", ["localhost", "127.0.0.1"])
def test_localhost_and_its_address_are_one_server(given: str) -> None:
    policy = EgressPolicy("Offline").with_own((given, 8000), ["127.0.0.1"])
    assert refusal(policy, "localhost", 8000, ["::1", "127.0.0.1"]) is None
    assert refusal(policy, "127.0.0.1", 8000, ["127.0.0.1"]) is None
    assert refusal(policy, "localhost", 8001, ["127.0.0.1"])
    assert refusal(policy, "localhost", 8000, ["127.0.0.2"])


def test_an_own_server_given_by_name_keeps_its_private_addresses() -> None:
    policy = EgressPolicy("Offline").with_own(("shop.example", 80), ["10.0.0.7"])
    assert refusal(policy, "shop.example", 80, ["10.0.0.7"]) is None
    assert refusal(policy, "shop.example", 80, ["8.8.8.8"]) is None
    assert "another private address" in (refusal(policy, "shop.example", 80, ["10.0.0.7", "10.0.0.8"]) or "")


def test_what_goes_past_the_proxy_has_no_name_to_look_up() -> None:
    policy = EgressPolicy()
    for url in (
        "http://shop.example/",
        "http://10.0.0.7:8000/a",
        "http://[fd12::1]/",
        "file:///a",
        "http://a:b/",
    ):
        place = place_of(url)
        policy = policy if place is None else policy.with_own(place, [])
    assert policy.bypass() == ("10.0.0.7:8000", "[fd12::1]:80")


async def _asked(proxy: EgressProxy, url: str) -> str:
    """The proxy's answer to GET, to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(proxy.address).port)
    writer.write(f"GET {url} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode())
    answer = (await asyncio.wait_for(reader.read(), 20.0)).decode()
    writer.close()
    return answer


async def test_a_name_that_stands_for_another_address_by_now_is_refused() -> None:
    heard: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append((await reader.readuntil(b"\r\n")).decode().split()[1])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        writer.close()

    addresses = {"shop.example": "127.0.0.1", "rebound.example": "127.0.0.1"}
    lookups: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        lookups.append(host)
        return [addresses[host]]

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        shop = f"http://shop.example:{port}"
        async with EgressProxy(EgressPolicy("Public"), [shop], resolve=resolve) as proxy:
            assert (await _asked(proxy, f"{shop}/first")).endswith("hi")
            # Looked up once for the pin and once for the request: what was judged is what was connected to.
            assert lookups == ["shop.example"] * 2
            addresses["shop.example"] = "127.0.0.3"
            assert "403" in await _asked(proxy, f"{shop}/second")
            assert "403" in await _asked(proxy, f"http://rebound.example:{port}/third")
            assert proxy.refused == 2
            assert "private address" in (proxy.why(f"{shop}/any") or "")
            assert "rebound.example" in (proxy.why(f"http://rebound.example:{port}/") or "")
            addresses["shop.example"] = "127.0.0.1"
            assert (await _asked(proxy, f"{shop}/fourth")).endswith("hi")
            assert proxy.why(f"{shop}/any") is None
    assert heard == ["/first", "/fourth"]


def test_sites_by_name() -> None:
    assert covers("example.com", "example.com")
    assert not covers("example.com", "www.example.com")
    assert covers("*.example.com", "a.b.example.com")
    assert not covers("*.example.com", "example.com")
    assert not covers("*.example.com", "badexample.com")
    policy = EgressPolicy("TaskSites", ("example.com", "*.example.org"))
    assert refusal(policy, "Example.COM.", 443, ["8.8.8.8"]) is None
    assert refusal(policy, "www.example.org", 443, ["8.8.8.8"]) is None
    assert "TaskSites" in (refusal(policy, "example.net", 443, []) or "")
    assert "private" in (refusal(policy, "example.com", 443, ["192.168.0.1"]) or "")


def test_offline_reaches_nothing_else() -> None:
    assert "Offline" in (refusal(EgressPolicy("Offline"), "example.com", 443, ["8.8.8.8"]) or "")
