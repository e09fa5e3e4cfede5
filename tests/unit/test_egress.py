"""What pages may reach."""

from __future__ import annotations

import ipaddress

import pytest

from webgym_workers.browser.egress import EgressPolicy, covers, is_public, refusal

PRIVATE = (
    "10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 100.127.255.255 169.254.169.254 127.0.0.1 127.9.9.9 "
    "0.0.0.0 0.1.2.3 224.0.0.1 240.0.0.1 255.255.255.255 192.0.2.1 198.18.0.1 :: ::1 fc00::1 fd12::1 fe80::1 "
    "fe80::1%eth0 fec0::1 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::7f00:1 64:ff9b::a00:1 64:ff9b::7f00:1 "
    "64:ff9b:1::808:808 2002:a00:1:: 2002:7f00:1:: 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:db8::1"
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


def test_what_is_no_address_is_refused() -> None:
    assert refusal(EgressPolicy(), "a.example", 80, ["8.8.8.8.8"])


@pytest.mark.parametrize("mode", ["Public", "TaskSites", "Offline"])
def test_the_tasks_own_server_is_reached_by_its_very_host_and_port(mode: str) -> None:
    policy = EgressPolicy(mode, own=frozenset({("127.0.0.1", 8000)}))  # type: ignore[arg-type]
    assert refusal(policy, "127.0.0.1", 8000, ["127.0.0.1"]) is None
    assert refusal(policy, "127.0.0.1", 8001, ["127.0.0.1"])
    assert refusal(policy, "localhost", 8000, ["127.0.0.1"])


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
