"""Which addresses a push may connect to. Pure.

A URL of a webhook must not lead into the network of the gateway: to its own ports, to a metadata service of a cloud, or
to what a firewall protects from the outside (server-side request forgery).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""https://www.iana.org/assignments/ipv6-address-space/"""
_NAT64 = IPv6Network("64:ff9b::/96")
"""The last 32 bits are an IPv4 address that a gateway translates to (RFC 6052). In 64:ff9b:1::/48, the prefix for local
use (RFC 8215), only the network knows where they are: its addresses are reserved."""


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """What pushes may connect to: public addresses over HTTPS, and what the configuration of the gateway adds.

    ``allow_private``: private, loopback and shared addresses, too. ``networks``: these, whatever they are. Link-local
    addresses, where clouds have their metadata services, are allowed by ``networks`` only.
    """

    allow_http: bool = False
    allow_private: bool = False
    networks: Sequence[Network] = ()

    def refusal(self, address: str) -> str | None:
        """Why no push may connect to ``address``, an IPv4 or IPv6 address, as the end of a sentence; None if it may."""
        given = ip_address(address)
        reached = _reached(given)
        if any(each in network for each in (given, reached) for network in self.networks):
            return None
        kind = _kind(reached)
        if kind is None or (self.allow_private and kind in ("private", "loopback")):
            return None
        return f"{address} is a {kind} address" if reached == given else f"{address} leads to a {kind} address"


def _reached(address: Address) -> Address:
    """The IPv4 address that an IPv6 address leads to; any other address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _kind(address: Address) -> str | None:
    """What makes an address more than a public one; None for a public one."""
    if address.is_unspecified:
        return "unspecified"
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if isinstance(address, IPv4Address):
        if address.is_reserved or address in IPv4Network("0.0.0.0/8"):
            return "reserved"
        return None if address.is_global else "private"
    if address in IPv6Network("fc00::/7"):
        return "private"
    return None if address in _GLOBAL_UNICAST and address.is_global else "reserved"
