"""Reads a broker's URL and options into the settings of a Service Bus client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from app.brokers.options import TEXT, OptionReader, choice, whole
from app.brokers.url import read_cloud_url
from app.errors import ConfigError

_EXPECTED = (
    "servicebus://NAMESPACE.servicebus.windows.net, or servicebus:// with the option connection_string, is expected"
)

MAX_HANDLERS = 100
"""Connections kept by default. A namespace takes 5,000, and each sender and receiver of the client is one:
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas"""


@dataclass(frozen=True, slots=True)
class ServiceBusSettings:
    """How to reach a namespace: its ``host`` with credentials of Microsoft Entra ID, or a ``connection_string``.

    ``websocket``: AMQP over WebSockets. ``admin_url``: where the entities are described, None for the namespace itself.
    ``max_handlers``: the most connections kept.
    """

    host: str
    connection_string: str | None = field(repr=False)
    websocket: bool
    admin_url: str | None
    max_handlers: int


def settings_of(url: str, options: Mapping[str, Any]) -> ServiceBusSettings:
    """The settings in ``servicebus://[host][?option=value]`` and ``options``; no I/O.

    Raises ConfigError, ``key`` "url" or the option's name; no error quotes a value.
    """
    host, given = read_cloud_url(url, options, expected=_EXPECTED)
    if host:
        given.refuse("connection_string", "it names the namespace, so that the URL is servicebus:// alone")
    connection_string = given.read("connection_string", TEXT, "") or None
    if not host and connection_string is None:
        raise ConfigError(key="url", reason=_EXPECTED)
    settings = ServiceBusSettings(
        host=host if connection_string is None else _host_of(connection_string),
        connection_string=connection_string,
        websocket=given.read("transport", choice("amqp", "websocket"), "amqp") == "websocket",
        admin_url=given.read("admin_url", _ADMIN_URL, "") or None,
        max_handlers=given.read("max_handlers", whole(3), MAX_HANDLERS),
    )
    given.finish()
    return settings


def _host_of(connection_string: str) -> str:
    """Check a connection string; the host in it."""
    parts = [part.partition("=") for part in connection_string.strip().rstrip(";").split(";")]
    members = {name.strip().lower(): value.strip() for name, _, value in parts}
    endpoint = urlsplit(members.get("endpoint", ""))
    keyed = "sharedaccesskeyname" in members and "sharedaccesskey" in members
    if not endpoint.scheme or not endpoint.hostname or not (keyed or "sharedaccesssignature" in members):
        reason = "Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=… is expected"
        raise ConfigError(key="connection_string", reason=reason)
    if "entitypath" in members:
        reason = "the connection string of a namespace is expected, without EntityPath"
        raise ConfigError(key="connection_string", reason=reason)
    if members.get("usedevelopmentemulator") == "true" and not _is_loopback(endpoint.hostname):
        # The client would send keys and messages without TLS, to any host.
        reason = "UseDevelopmentEmulator is for a host of the loopback alone: it turns TLS off"
        raise ConfigError(key="connection_string", reason=reason)
    return endpoint.hostname


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _admin_url(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    parts = urlsplit(value)
    if not parts.hostname or "@" in parts.netloc or parts.query:
        raise ValueError
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname)):
        raise ValueError
    return value


_ADMIN_URL = OptionReader("an https:// URL without credentials, or an http:// URL of the loopback", _admin_url)
