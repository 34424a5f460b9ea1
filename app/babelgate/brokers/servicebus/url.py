"""Reads a broker's URL and options into the settings of a Service Bus client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

from babelgate.brokers.options import TEXT, OptionReader, choice, whole
from babelgate.brokers.url import Tls, read_cloud_url
from babelgate.errors import ConfigError

_EXPECTED = (
    "servicebus://NAMESPACE.servicebus.windows.net, or servicebus:// with the option connection_string, is expected"
)

_AMQP_PORT, _AMQPS_PORT, _HTTPS_PORT = 5672, 5671, 443

MAX_HANDLERS = 100
"""Connections kept by default. A namespace takes 5,000, and each sender and receiver of the client is one:
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas"""


@dataclass(frozen=True, slots=True)
class ServiceBusSettings:
    """How to reach a namespace: its ``host`` with credentials of Microsoft Entra ID, or a ``connection_string``.

    ``websocket``: AMQP over WebSockets. ``address``: host and port to connect to, also as ``endpoint_url`` where that
    is not the namespace. ``tls``: only an emulator has none. ``admin_url``: where the entities are described, None for
    the namespace itself. ``max_handlers``: the most connections kept.
    """

    host: str
    connection_string: str | None = field(repr=False)
    websocket: bool
    address: tuple[str, int]
    endpoint_url: str | None
    tls: Tls | None
    admin_url: str | None
    max_handlers: int


def settings_of(url: str, options: Mapping[str, Any]) -> ServiceBusSettings:
    """The settings in ``servicebus://[host][?option=value]`` and ``options``; no I/O.

    Raises ConfigError, ``key`` "url" or the option's name; no error quotes a value.
    """
    host, given = read_cloud_url(url, options, expected=_EXPECTED)
    if host:
        given.refuse("connection_string", "it names the namespace, so that the URL is servicebus:// alone")
    connection_string = given.secret("connection_string") or None
    if not host and connection_string is None:
        raise ConfigError(key="url", reason=_EXPECTED)
    websocket = given.read("transport", choice("amqp", "websocket"), "amqp") == "websocket"
    port = _HTTPS_PORT if websocket else _AMQPS_PORT
    is_emulator = False
    if connection_string is not None:
        endpoint, is_emulator = _endpoint_of(connection_string)
        host = endpoint.hostname or ""
        if is_emulator:
            port = endpoint.port or _AMQP_PORT
            for key in ("endpoint_url", "ssl_ca_certs"):
                given.refuse(key, "an emulator has no TLS, and its address is in the connection string")
    endpoint_url = given.read("endpoint_url", _ENDPOINT_URL, "") or None
    if endpoint_url is not None:
        parts = urlsplit(endpoint_url)
        address = parts.hostname or "", parts.port or port
    else:
        address = host, port
    settings = ServiceBusSettings(
        host=host,
        connection_string=connection_string,
        websocket=websocket,
        address=address,
        endpoint_url=endpoint_url,
        tls=None if is_emulator else Tls(ca_certs=given.read("ssl_ca_certs", TEXT, "") or None),
        admin_url=given.read("admin_url", _ADMIN_URL, "") or None,
        max_handlers=given.read("max_handlers", whole(3), MAX_HANDLERS),
    )
    given.finish()
    return settings


def _endpoint_of(connection_string: str) -> tuple[SplitResult, bool]:
    """Check a connection string; the endpoint in it, and whether that is an emulator."""
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
    is_emulator = members.get("usedevelopmentemulator") == "true"
    if is_emulator and not _is_loopback(endpoint.hostname):
        # The client would send keys and messages without TLS, to any host.
        reason = "UseDevelopmentEmulator is for a host of the loopback alone: it turns TLS off"
        raise ConfigError(key="connection_string", reason=reason)
    return endpoint, is_emulator


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _endpoint_url(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    parts = urlsplit(value)
    if parts.scheme != "sb" or not parts.hostname or not parts.port or "@" in parts.netloc or parts.query:
        raise ValueError
    return value


def _admin_url(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    parts = urlsplit(value)
    if not parts.hostname or "@" in parts.netloc or parts.query:
        raise ValueError
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname)):
        raise ValueError
    return value


_ENDPOINT_URL = OptionReader("sb://HOST:PORT", _endpoint_url)
_ADMIN_URL = OptionReader("an https:// URL without credentials, or an http:// URL of the loopback", _admin_url)
