"""Which addresses a push may connect to."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from babelgate.push.addresses import AddressGuard

PUBLIC = ["8.8.8.8", "192.0.66.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
PRIVATE = [
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.9.9.9",
    "::1",
    "fc00::1",
    "fd12:3456::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "2002:7f00:1::1",
]
NEVER = [
    "0.0.0.0",
    "0.1.2.3",
    "::",
    "169.254.169.254",
    "fe80::1",
    "fe80::1%eth0",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "64:ff9b:1:7f00:0:100:808:808",
    "2002:a9fe:a9fe::1",
    "224.0.0.1",
    "ff02::1",
    "240.0.0.1",
    "255.255.255.255",
    "::127.0.0.1",
    "fec0::1",
    "2001:0:1::1",
    "2001:db8::1",
    "5f00::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_allowed(address: str) -> None:
    assert AddressGuard().refusal(address) is None


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_one_needs_allow_private(address: str) -> None:
    assert AddressGuard().refusal(address) is not None
    assert AddressGuard(allow_private=True).refusal(address) is None


@pytest.mark.parametrize("address", NEVER)
def test_allow_private_does_not_lead_to_metadata_services(address: str) -> None:
    assert AddressGuard(allow_private=True).refusal(address) is not None


def test_networks_allow_what_they_contain() -> None:
    guard = AddressGuard(networks=(ip_network("10.1.0.0/16"), ip_network("169.254.169.0/24"), ip_network("fd00::/8")))
    assert [guard.refusal(each) for each in ("10.1.2.3", "169.254.169.254", "fd00::1", "::ffff:10.1.0.1")] == [None] * 4
    assert guard.refusal("10.2.0.1") == "10.2.0.1 is a private address"
    assert guard.refusal("::ffff:10.2.0.1") == "::ffff:10.2.0.1 leads to a private address"
