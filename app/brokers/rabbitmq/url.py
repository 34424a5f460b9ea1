"""A broker's URL and options to what it takes to connect."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from app.brokers.options import switch, text, verification
from app.errors import ConfigError

HEARTBEAT_SECONDS = 60
"""The client's default; the server suggests the same: https://www.rabbitmq.com/docs/heartbeats"""


@dataclass(frozen=True, slots=True)
class Tls:
    """How the server is verified, and the certificate that is shown to it. Files are read at each connect."""

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    verify: bool = True
    check_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Reads the files. Raises OSError (of which SSLError is one)."""
        made = ssl.create_default_context(cafile=self.ca_certs)
        made.check_hostname = self.check_hostname and self.verify
        made.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
        if self.certfile is not None:
            made.load_cert_chain(self.certfile, self.keyfile)
        return made


@dataclass(frozen=True, slots=True)
class ManagementEndpoint:
    """The management API: its base ``url`` without credentials, and these."""

    url: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConnectionParameters:
    """One RabbitMQ virtual host, and how to reach it. ``heartbeat`` in whole seconds."""

    host: str
    port: int
    username: str
    password: str = field(repr=False)
    vhost: str = "/"
    heartbeat: int = HEARTBEAT_SECONDS
    tls: Tls | None = None
    management: ManagementEndpoint | None = None


def _heartbeat(value: object) -> int:
    # 0 would switch heartbeats off, and a dead peer would never be noticed.
    expected = "a number of seconds from 1 to 3600 is expected"
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).isdecimal():
        raise ValueError(expected)
    if not 1 <= int(value) <= 3600:
        raise ValueError(expected)
    return int(value)


_TLS: Mapping[str, tuple[str, Callable[[object], Any]]] = {
    "ssl_ca_certs": ("ca_certs", text),
    "ssl_certfile": ("certfile", text),
    "ssl_keyfile": ("keyfile", text),
    "ssl_cert_reqs": ("verify", lambda value: verification(value) == "required"),
    "ssl_check_hostname": ("check_hostname", switch),
}
"""Named as for Redis, so that all brokers are told the same way."""

_PLAIN: Mapping[str, Callable[[object], Any]] = {
    "heartbeat": _heartbeat,
    "username": text,
    "password": text,
    "management": text,
    "management_username": text,
    "management_password": text,
}


def parameters_of(url: str, options: Mapping[str, Any]) -> ConnectionParameters:
    """Reads ``amqp[s]://[user[:password]@]host[:port][/vhost]``; no I/O.

    What stands in ``options`` may also stand in the URL's query. Without a path the virtual host is ``/``, written
    ``%2F`` in a path of its own. Raises ConfigError, its ``key`` "url" or the option.
    """
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    if "," in parts.netloc.rpartition("@")[2]:
        reason = "one host is expected: name a load balancer, or a DNS name that leads to all nodes"
        raise ConfigError(key="url", reason=reason)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(key="url", reason="the port is not a number from 0 to 65535") from None
    vhost = parts.path.removeprefix("/")
    if scheme not in ("amqp", "amqps") or not host or parts.fragment:
        raise ConfigError(key="url", reason="amqp[s]://[user[:password]@]host[:port][/vhost] is expected")
    if "/" in vhost:
        raise ConfigError(key="url", reason="one virtual host is expected in the path, a / in its name as %2F")

    given: dict[str, Any] = {}
    if parts.username:
        given["username"] = unquote(parts.username)
    if parts.password:
        given["password"] = unquote(parts.password)
    given.update(parse_qsl(parts.query, keep_blank_values=True))
    given.update(options)
    read = {key: _read(key, value, scheme) for key, value in given.items()}
    tls = {_TLS[key][0]: value for key, value in read.items() if key in _TLS}
    if "keyfile" in tls and "certfile" not in tls:
        raise ConfigError(key="ssl_keyfile", reason="ssl_certfile is expected beside it")
    username, password = read.get("username", "guest"), read.get("password", "guest")
    return ConnectionParameters(
        host=unquote(host),
        port=port or (5671 if scheme == "amqps" else 5672),
        username=username,
        password=password,
        vhost=unquote(vhost) or "/",
        heartbeat=read.get("heartbeat", HEARTBEAT_SECONDS),
        tls=Tls(**tls) if scheme == "amqps" else None,
        management=_management(read, username, password),
    )


def _read(key: str, value: object, scheme: str) -> Any:
    if key in _TLS and scheme != "amqps":
        raise ConfigError(key=key, reason="TLS needs a URL that starts with amqps://")
    reader = _PLAIN.get(key) or _TLS.get(key, ("", None))[1]
    if reader is None:
        known = (*_PLAIN, *_TLS) if scheme == "amqps" else _PLAIN
        raise ConfigError(key=key, reason=f"unknown; known are {', '.join(known)}")
    try:
        return reader(value)
    except ValueError as error:
        raise ConfigError(key=key, reason=str(error)) from None


def _management(read: Mapping[str, Any], username: str, password: str) -> ManagementEndpoint | None:
    """Where its API is: credentials are its own options, or its URL's, or those of AMQP."""
    for key in ("management_username", "management_password"):
        if key in read and "management" not in read:
            raise ConfigError(key=key, reason="management, the URL of the API, is expected beside it")
    if "management" not in read:
        return None
    parts = urlsplit(read["management"])
    try:
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise ConfigError(key="management", reason="http[s]://host[:port][/path] is expected")
    host = parts.netloc.rpartition("@")[2]
    return ManagementEndpoint(
        f"{parts.scheme}://{host}{parts.path.rstrip('/')}",
        read.get("management_username") or unquote(parts.username or "") or username,
        read.get("management_password") or unquote(parts.password or "") or password,
    )
