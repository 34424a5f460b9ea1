"""Reads the URL and the options of an Artemis broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from babelgate.brokers.options import TEXT, choice
from babelgate.brokers.url import Tls, read_tls, read_url
from babelgate.errors import ConfigError

_FORM = "artemis[+ssl]://[user[:password]@]host[:port][,host2[:port]]"

Mechanism = Literal["PLAIN", "EXTERNAL", "ANONYMOUS"]


@dataclass(frozen=True, slots=True)
class ArtemisSettings:
    """The ``hosts``, tried in order, each with its port; credentials, and SASL's ``mechanism``."""

    hosts: tuple[tuple[str, int], ...]
    username: str
    password: str = field(repr=False)
    mechanism: Mechanism
    tls: Tls | None


def settings_of(url: str, options: Mapping[str, Any]) -> ArtemisSettings:
    """Reads ``artemis[+ssl]://[user[:password]@]host[:port]``, several hosts separated by commas; no I/O.

    ``options`` may also stand in the URL's query. Raises ConfigError, ``key`` "url" or the option's name.
    """
    target = read_url(url, options, form=_FORM)
    if target.path:
        raise ConfigError(key="url", reason=f"{_FORM} is expected, without a path")
    tls = read_tls(target)
    given = target.options
    username, password = given.read("username", TEXT, ""), given.secret("password")
    likely: Mechanism = "PLAIN" if username else "ANONYMOUS"
    if not username and tls is not None and tls.certfile is not None:
        likely = "EXTERNAL"
    mechanism: Mechanism = given.read("sasl", choice("PLAIN", "EXTERNAL", "ANONYMOUS"), likely)
    given.finish()
    if mechanism == "PLAIN" and not (username and password):
        raise ConfigError(key="password" if username else "username", reason="sasl PLAIN needs username and password")
    if mechanism != "PLAIN" and (username or password):
        raise ConfigError(key="sasl", reason=f"{mechanism} has no username and password: leave them out, or use PLAIN")
    if mechanism == "EXTERNAL" and (tls is None or tls.certfile is None):
        raise ConfigError(key="sasl", reason="EXTERNAL needs TLS and a client certificate: ssl_certfile")
    default = 5671 if target.secure else 5672
    return ArtemisSettings(
        tuple((host, port or default) for host, port in target.hosts), username, password, mechanism, tls
    )
