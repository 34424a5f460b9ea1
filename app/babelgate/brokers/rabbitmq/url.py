"""Turns a broker's URL and options into the parameters of its connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from babelgate.brokers.options import TEXT, OptionMap, whole
from babelgate.brokers.url import Tls, read_tls, read_url
from babelgate.errors import ConfigError

HEARTBEAT_SECONDS = 60
"""The client's default; the server suggests the same: https://www.rabbitmq.com/docs/heartbeats"""

_HEARTBEAT = whole(1, 3600, what="a number of seconds")
"""0 would switch heartbeats off, and a dead peer would never be noticed."""

_FORM = "amqp[s]://[user[:password]@]host[:port][/vhost]"


@dataclass(frozen=True, slots=True)
class ManagementEndpoint:
    """The management API: its base ``url`` without credentials, and the credentials."""

    url: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConnectionParameters:
    """The address, credentials and options of one RabbitMQ virtual host. ``heartbeat`` in whole seconds."""

    host: str
    port: int
    username: str
    password: str = field(repr=False)
    vhost: str = "/"
    heartbeat: int = HEARTBEAT_SECONDS
    tls: Tls | None = None
    management: ManagementEndpoint | None = None


def parameters_of(url: str, options: Mapping[str, Any]) -> ConnectionParameters:
    """Reads ``amqp[s]://[user[:password]@]host[:port][/vhost]``; no I/O.

    ``options`` may also stand in the URL's query. Without a path the virtual host is ``/``; in a path it is written as
    ``%2F``. Raises ConfigError, ``key`` "url" or the option's name.
    """
    target = read_url(url, options, form=_FORM, instead=": name a load balancer, or a DNS name of all nodes")
    if "/" in target.path:
        raise ConfigError(key="url", reason="one virtual host is expected in the path, a / in its name as %2F")
    tls = read_tls(target)
    given = target.options
    heartbeat = given.read("heartbeat", _HEARTBEAT, HEARTBEAT_SECONDS)
    username, password = given.read("username", TEXT, "guest"), given.secret("password", "guest")
    management = _management(given, username, password)
    given.finish()
    return ConnectionParameters(
        host=target.host,
        port=target.port or (5671 if target.secure else 5672),
        username=username,
        password=password,
        vhost=unquote(target.path) or "/",
        heartbeat=heartbeat,
        tls=tls,
        management=management,
    )


def _management(given: OptionMap, username: str, password: str) -> ManagementEndpoint | None:
    """The management API. Its credentials are its own options, else those of its URL, else those of AMQP."""
    url = given.read("management", TEXT, "")
    if not url:
        for key in ("management_username", "management_password"):
            given.refuse(key, "management, the URL of the API, is expected beside it")
    own_username, own_password = given.read("management_username", TEXT, ""), given.secret("management_password")
    if not url:
        return None
    parts = urlsplit(url)
    try:
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise ConfigError(key="management", reason="http[s]://host[:port][/path] is expected")
    host = parts.netloc.rpartition("@")[2]
    return ManagementEndpoint(
        f"{parts.scheme}://{host}{parts.path.rstrip('/')}",
        own_username or unquote(parts.username or "") or username,
        own_password or unquote(parts.password or "") or password,
    )
