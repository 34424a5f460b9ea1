"""A broker's URL and options to the arguments of redis-py's connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from app.brokers.options import switch, text, verification
from app.errors import ConfigError

_REFUSED = {
    "redis+sentinel": "Sentinel is not supported: name the primary, or a proxy or DNS name that follows it",
    "redis+cluster": "Redis Cluster is not supported: a message's keys must lie on one server",
}


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).isdecimal():
        raise ValueError("a number from 0 is expected")
    return int(value)


_PLAIN: Mapping[str, Callable[[object], object]] = {"db": _number, "username": text, "password": text}
_TLS: Mapping[str, Callable[[object], object]] = {
    "ssl_ca_certs": text,
    "ssl_certfile": text,
    "ssl_keyfile": text,
    "ssl_cert_reqs": verification,
    "ssl_check_hostname": switch,
}
"""Named as in redis-py's own URLs, so that a URL that works elsewhere works here."""


def connector(url: str, options: Mapping[str, Any]) -> Callable[[], AbstractConnection]:
    """Makes connections, none of them open yet, to ``redis[s]://[user[:password]@]host[:port][/db]``.

    What stands in ``options`` may also stand in the URL's query. Raises ConfigError, its ``key`` "url" or the option.
    """
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    if scheme in _REFUSED:
        raise ConfigError(key="url", reason=_REFUSED[scheme])
    if "," in parts.netloc.rpartition("@")[2]:
        raise ConfigError(key="url", reason="one host is expected; Sentinel and Cluster are not supported")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(key="url", reason="the port is not a number from 0 to 65535") from None
    if scheme not in ("redis", "rediss") or not host or parts.fragment:
        raise ConfigError(key="url", reason="redis[s]://[user[:password]@]host[:port][/db] is expected")

    given: dict[str, object] = {}
    if path := parts.path.strip("/"):
        given["db"] = path
    if parts.username:
        given["username"] = unquote(parts.username)
    if parts.password:
        given["password"] = unquote(parts.password)
    given.update(parse_qsl(parts.query, keep_blank_values=True))
    given.update(options)

    arguments: dict[str, Any] = {"host": unquote(host), "port": port or 6379}
    known = {**_PLAIN, **_TLS} if scheme == "rediss" else _PLAIN
    for key, value in given.items():
        if key in _TLS and key not in known:
            raise ConfigError(key=key, reason="TLS needs a URL that starts with rediss://")
        if key not in known:
            raise ConfigError(key=key, reason=f"unknown; known are {', '.join(known)}")
        try:
            arguments[key] = known[key](value)
        except ValueError as error:
            raise ConfigError(key=key, reason=str(error)) from None
    kind = SSLConnection if scheme == "rediss" else Connection
    return lambda: kind(
        **arguments,
        protocol=2,
        # Time is bounded by the line; a repeat of what was written could write it twice.
        socket_timeout=None,
        socket_connect_timeout=None,
        retry=Retry(NoBackoff(), 0),
        driver_info=None,
    )
