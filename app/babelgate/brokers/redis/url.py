"""Turns a broker's URL and options into the arguments of redis-py's connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from babelgate.brokers.options import TEXT, whole
from babelgate.brokers.url import read_tls, read_url
from babelgate.errors import ConfigError

_FORM = "redis[s]://[user[:password]@]host[:port][/db]"
_REFUSED = {
    "redis+sentinel": "Sentinel is not supported: name the primary, or a proxy or DNS name that follows it",
    "redis+cluster": "Redis Cluster is not supported: a message's keys must lie on one server",
}


def connector(url: str, options: Mapping[str, Any]) -> Callable[[], AbstractConnection]:
    """Creates connections, not yet open, to ``redis[s]://[user[:password]@]host[:port][/db]``.

    ``options`` may also stand in the URL's query. Raises ConfigError, ``key`` "url" or the option's name.
    """
    scheme = url.partition("://")[0].lower()
    if scheme in _REFUSED:
        raise ConfigError(key="url", reason=_REFUSED[scheme])
    target = read_url(url, options, form=_FORM, instead="; Sentinel and Cluster are not supported")
    given = target.options
    if path := target.path.strip("/"):
        given.add("db", path)
    tls = read_tls(target)
    arguments: dict[str, Any] = {
        "host": target.host,
        "port": target.port or 6379,
        "db": given.read("db", whole(0, what="a number"), 0),
        "username": given.read("username", TEXT, "") or None,
        "password": given.secret("password") or None,
    }
    given.finish()
    kind: type[AbstractConnection] = Connection
    if tls is not None:
        kind = SSLConnection
        arguments |= {
            "ssl_ca_certs": tls.ca_certs,
            "ssl_certfile": tls.certfile,
            "ssl_keyfile": tls.keyfile,
            "ssl_cert_reqs": "required" if tls.verify else "none",
            "ssl_check_hostname": tls.check_hostname and tls.verify,
        }
    return lambda: kind(
        **arguments,
        protocol=2,
        # PipelinedConnection bounds the time. redis-py must not repeat a command: it could be executed twice.
        socket_timeout=None,
        socket_connect_timeout=None,
        retry=Retry(NoBackoff(), 0),
        driver_info=None,
    )
