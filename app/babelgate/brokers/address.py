"""Whether two URLs of a broker lead to the same server, as far as their text says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from babelgate.brokers.registry import driver

_PLACES = ("assume_role_arn", "db", "endpoint_url", "profile", "region")
"""The options that say where the queues are, of all brokers. A connection string does, too."""

_ENDPOINT = re.compile(r"(?:^|;)\s*Endpoint\s*=\s*(?:sb://)?([^;/]*)", re.IGNORECASE)


def address_of(name: str, url: str, options: Mapping[str, Any]) -> str:
    """The server that the URL and the options of the broker ``name`` lead to, and the place on it: kind, hosts, ports
    and path. User, password and other options do not count. Raises ConfigError for a scheme that is not known.

    Two texts of one server, such as its name and its IP address, are two addresses.
    """
    head, _, query = url.partition("?")
    _, _, rest = head.partition("://")
    authority, slash, path = rest.partition("/")
    hosts = ",".join(sorted(authority.rpartition("@")[2].lower().split(",")))
    given = {**dict(parse_qsl(query)), **{key: str(value) for key, value in options.items()}}
    places = [f"{key}={given[key]}" for key in _PLACES if key in given]
    if found := _ENDPOINT.search(given.get("connection_string", "")):
        places.append(found[1].lower())
    return " ".join([f"{driver(name, url).kind}://{hosts}{slash}{path}", *places])
