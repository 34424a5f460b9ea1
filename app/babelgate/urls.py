"""Which URLs a document may be read from: keys of an issuer, a bundle of schemas."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def refusal_of(url: str, *, may_have_query: bool = False) -> str | None:
    """Why no document is read from ``url``; None if it may be. An issuer has no query; the address of its keys may have
    one: https://openid.net/specs/openid-connect-core-1_0.html#Terminology"""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not a URL"
    if not host or not url.isascii() or parts.username is not None or parts.fragment:
        return "must be a URL with a host, without user and fragment"
    if parts.query and not may_have_query:
        return "must be a URL without query"
    if parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host)):
        return None
    return "must begin with https://; only on this machine may it be http://"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
