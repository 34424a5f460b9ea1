"""Reads a broker's URL and options into the settings of a Pulsar client, and a route's options into a queue."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from babelgate.brokers.options import BOOLEAN, TEXT, OptionMap, OptionReader
from babelgate.brokers.url import Tls, read_tls, read_url
from babelgate.errors import ConfigError

_FORM = "pulsar[+ssl]://host[:port][,host[:port]][/tenant/namespace]"
_PORT, _TLS_PORT = 6650, 6651
_NAME = re.compile(r"[A-Za-z0-9_=:.-]+")
"""Of a tenant or a namespace:
https://github.com/apache/pulsar/blob/master/pulsar-common/src/main/java/org/apache/pulsar/common/naming/NamedEntity.java"""

DEAD_SUFFIX = ".dlq"
"""The SDKs of BabelQueue write dead letters to ``<topic>.dlq``."""


@dataclass(frozen=True, slots=True)
class OAuth2:
    """Client credentials. ``issuer_url``: where the document of OpenID Connect Discovery is found."""

    issuer_url: str
    client_id: str
    client_secret: str = field(repr=False)
    audience: str | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class PulsarSettings:
    """How to reach a cluster, and the ``namespace`` of its topics: ``tenant/namespace``.

    ``hosts``: brokers or proxies, tried in this order. ``tls``: None for connections without. ``token_path``: a file
    with a token, read whenever one is needed. ``admin_url``: the admin interface, for counts; None: there are none.
    ``single_address``: the brokers' own addresses are not used.
    """

    hosts: tuple[tuple[str, int], ...]
    namespace: str
    tls: Tls | None
    token: str | None = field(repr=False)
    token_path: str | None
    oauth2: OAuth2 | None
    admin_url: str | None
    single_address: bool


@dataclass(frozen=True, slots=True)
class PulsarQueue:
    """A queue with the validated options of its route. ``topic``: its full name. ``key_shared``: the messages with one
    ordering key go to one consumer at a time. ``partition``: the topic of the partition that alone is read."""

    topic: str
    key_shared: bool = False
    partition: str | None = None

    @property
    def dead(self) -> PulsarQueue:
        """The topic of its dead letters."""
        return PulsarQueue(self.topic + DEAD_SUFFIX)


def settings_of(url: str, options: Mapping[str, Any]) -> PulsarSettings:
    """The settings in a URL and ``options``; no I/O.

    Raises ConfigError, ``key`` "url" or the option's name; no error quotes a value.
    """
    parts = read_url(url, options, form=_FORM)
    given = parts.options
    port = _TLS_PORT if parts.secure else _PORT
    settings = PulsarSettings(
        hosts=tuple((host, port if given_port is None else given_port) for host, given_port in parts.hosts),
        namespace=_namespace(parts.path),
        tls=read_tls(parts),
        token=given.secret("token") or None,
        token_path=given.read("token_path", TEXT, "") or None,
        oauth2=_oauth2(given),
        admin_url=given.read("admin_url", _HTTP_URL, "") or None,
        single_address=given.read("single_address", BOOLEAN, False),
    )
    if settings.token_path is not None:
        given.refuse("token", "either a token or token_path is expected")
    given.finish()
    return settings


def queue_of(settings: PulsarSettings, name: str, options: Mapping[str, Any]) -> PulsarQueue:
    """The queue of a route. Raises ConfigError for an unknown or invalid option."""
    given = OptionMap(options)
    queue = PulsarQueue(f"persistent://{settings.namespace}/{name}", given.read("key_shared", BOOLEAN, False))
    given.finish()
    return queue


def _namespace(path: str) -> str:
    parts = [unquote(part) for part in path.rstrip("/").split("/")]
    if parts == [""]:
        return "public/default"
    if len(parts) != 2 or not all(_NAME.fullmatch(part) for part in parts):
        raise ConfigError(key="url", reason=f"{_FORM} is expected")
    return "/".join(parts)


def _oauth2(given: OptionMap) -> OAuth2 | None:
    issuer = given.read("oauth2_issuer_url", _HTTP_URL, "")
    found = {
        "client_id": given.read("oauth2_client_id", TEXT, ""),
        "client_secret": given.secret("oauth2_client_secret"),
    }
    others = {name: given.read(f"oauth2_{name}", TEXT, "") or None for name in ("audience", "scope")}
    if not issuer:
        for name in (*found, *others):
            given.refuse(f"oauth2_{name}", "oauth2_issuer_url is expected beside it")
        return None
    for name in ("token", "token_path"):
        given.refuse(name, "either a token or OAuth 2.0 is expected")
    for name, value in found.items():
        if not value:
            raise ConfigError(key=f"oauth2_{name}", reason="it is expected beside oauth2_issuer_url")
    return OAuth2(issuer, found["client_id"], found["client_secret"], others["audience"], others["scope"])


def _http_url(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        raise ValueError
    return value.rstrip("/")


_HTTP_URL = OptionReader("an http:// or https:// URL without credentials", _http_url)
