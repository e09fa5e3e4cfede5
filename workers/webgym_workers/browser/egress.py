"""What pages may reach: a decision about one connection, made before it is opened."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import urlsplit

__all__ = ["EgressMode", "EgressPolicy", "Place", "covers", "is_public", "normal_host", "place_of", "refusal"]

EgressMode = Literal["Public", "TaskSites", "Offline"]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Place = tuple[str, int]
"""Host, as :func:`normal_host` gives it, and port."""

# Two names of one server, which pages mix; Chromium looks neither up.
_LOOPBACK = ("127.0.0.1", "localhost")

# The host of the virtual machines of a cloud, which tells them secrets; their private address for it looks public.
_CLOUD_HOST = ipaddress.IPv4Address("168.63.129.16")

# Addresses that carry an IPv4 address which a gateway or the kernel would deliver to.
_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_SITE_LOCAL = ipaddress.IPv6Network("fec0::/10")


@dataclass(frozen=True)
class EgressPolicy:
    """What pages of a browser may reach.

    Attributes:
        mode: ``Public``: public addresses. ``TaskSites``: public addresses of ``sites`` alone. ``Offline``: nothing.
        sites: Host names in lower case; ``*.example.com`` covers all names below example.com, not itself.
        own: The tasks' own servers, which are reached in every mode, each with the private addresses it may have.
    """

    mode: EgressMode = "Public"
    sites: tuple[str, ...] = ()
    own: Mapping[Place, frozenset[str]] = field(default_factory=dict)

    def with_own(self, place: Place, addresses: Iterable[str]) -> EgressPolicy:
        """With one more own server, which may have these addresses, or public ones, from now on."""
        host, port = place
        if host in _LOOPBACK:
            return replace(
                self,
                own={**self.own, **{(name, port): frozenset({"127.0.0.1", "::1"}) for name in _LOOPBACK}},
            )
        return replace(self, own={**self.own, place: frozenset(addresses)})

    def with_sites(self, sites: Iterable[str]) -> EgressPolicy:
        """With further sites."""
        return replace(self, sites=tuple(dict.fromkeys([*self.sites, *map(normal_host, sites)])))

    def bypass(self) -> tuple[str, ...]:
        """Own servers that need no judging on the way, as Chromium's bypass list names them.

        They are named by address; what a name stands for may change.
        """
        return tuple(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            for host, port in self.own
            if host in _LOOPBACK or _is_address(host)
        )


def normal_host(host: str) -> str:
    """A host as rules name it: in lower case, without brackets and trailing dot."""
    return host.removeprefix("[").removesuffix("]").lower().removesuffix(".")


def place_of(url: str) -> Place | None:
    """The server of a URL; None where no server is asked (``file:``, ``data:``), or none that there could be."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    return normal_host(parts.hostname), port


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def covers(site: str, host: str) -> bool:
    """Whether a site of a policy covers a host: the very name, or any name below for ``*.``."""
    if site.startswith("*."):
        return host.endswith(site[1:]) and len(host) > len(site) - 1
    return host == site


def is_public(address: Address) -> bool:
    """Whether an address is one of the public internet, also by what it carries (IPv4-mapped, NAT64, 6to4, Teredo)."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None or address in _SITE_LOCAL:
            return False
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address in _COMPATIBLE or address.teredo is not None:
            return False
        if address.sixtofour is not None:
            return is_public(address.sixtofour)
        if address in _NAT64[1]:
            return False
        if address in _NAT64[0]:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    if address == _CLOUD_HOST:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def refusal(
    policy: EgressPolicy, host: str, port: int, addresses: Sequence[str], *, here: Collection[str] = ()
) -> str | None:
    """Why a connection is refused; None lets it pass.

    Args:
        policy: What pages may reach.
        host: Name or address as the page gave it.
        port: Port.
        addresses: What the name stands for. All of them are judged, since any may be connected to; empty asks
            whether the name alone is refused, before it is looked up.
        here: Those of them that are the machine's own: no page reaches it, whether it is at a public address or not.
    """
    name = normal_host(host)
    own = policy.own.get((name, port))
    if own is None and policy.mode == "Offline":
        return "browser.egress: Offline lets pages reach the task's own server alone"
    if own is None and policy.mode == "TaskSites" and not any(covers(site, name) for site in policy.sites):
        return "browser.egress: TaskSites names no such site; add it to browser.allowedSites or to the task's sites"
    for text in addresses:
        try:
            public = is_public(ipaddress.ip_address(text))
        except ValueError:
            public = False
        if (public and text not in here) or (own is not None and text in own):
            continue
        if public:
            return "it is the very machine that the browser runs on, which pages never reach"
        if own is not None:
            return "the task's own server now has another private address than when the task named it"
        return "it is at a private address, which pages never reach"
    return None
