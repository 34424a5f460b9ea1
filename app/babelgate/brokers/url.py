"""Parses the URLs of network brokers and their options, TLS included."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from babelgate.brokers.options import BOOLEAN, TEXT, OptionMap, choice
from babelgate.errors import ConfigError

_TLS_KEYS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
"""Named as in redis-py's own URLs, for all brokers alike."""


@dataclass(frozen=True, slots=True)
class Tls:
    """How the server's certificate is verified, and the client certificate. Files are read at each connect."""

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    verify: bool = True
    check_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Read the files. Raises OSError (of which SSLError is one), its text with the option of the file."""
        try:
            made = ssl.create_default_context(cafile=self.ca_certs)
        except OSError as error:
            raise _unreadable("ssl_ca_certs", error) from error
        made.check_hostname = self.check_hostname and self.verify
        made.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
        if self.certfile is not None:
            try:
                made.load_cert_chain(self.certfile, self.keyfile)
            except OSError as error:
                keys = "ssl_certfile" if self.keyfile is None else "ssl_certfile, ssl_keyfile"
                raise _unreadable(keys, error) from error
        return made


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """One network broker. ``path`` is still percent-encoded, without the first slash; ``port`` None: not given.

    ``hosts``: each host with its port, of which ``host`` and ``port`` are the first. ``secure``: the scheme is
    ``secure_scheme``, the one with TLS.

    ``options``: those of the mapping and the query, and ``username`` and ``password`` also from the userinfo.
    """

    scheme: str
    secure: bool
    host: str
    port: int | None
    path: str
    options: OptionMap
    hosts: tuple[tuple[str, int | None], ...]
    secure_scheme: str


def read_url(url: str, options: Mapping[str, Any], *, form: str, instead: str | None = None) -> BrokerUrl:
    """Parse ``url``; no I/O.

    ``form`` is the accepted form, for errors: ``redis[s]://[user[:password]@]host[:port][/db]``; the text in the first
    brackets is what the scheme with TLS has more. ``instead`` ends the error for several hosts; without it, several are
    accepted, separated by commas. Each option stands in the URL or in ``options``, not in both. Raises ConfigError,
    ``key`` "url" or the option's name; no error quotes a value.
    """
    parts, addresses = _first_host(url, f"{form} is expected")
    if len(addresses) > 1 and instead is not None:
        raise ConfigError(key="url", reason=f"one host is expected{instead}")
    hosts = tuple(map(_host, addresses))
    scheme = parts.scheme.lower()
    plain, _, rest = form.partition("[")
    suffix = rest.partition("]")[0]
    if scheme not in (plain, plain + suffix) or not all(host for host, _ in hosts) or parts.fragment:
        raise ConfigError(key="url", reason=f"{form} is expected")
    all_options = _with_query(options, parts.query)
    for key, value in (("username", parts.username), ("password", parts.password)):
        if value:
            all_options.add(key, unquote(value))
    host, port = hosts[0]
    path = parts.path.removeprefix("/")
    return BrokerUrl(scheme, scheme != plain, host, port, path, all_options, hosts, plain + suffix)


def _host(address: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(f"//{address}")
        return unquote(parts.hostname or ""), parts.port
    except ValueError:
        raise ConfigError(key="url", reason="the port is not a number from 0 to 65535") from None


def read_cloud_url(url: str, options: Mapping[str, Any], *, expected: str) -> tuple[str, OptionMap]:
    """The name in ``scheme://[name][?option=value]``, and the options in the query and ``options``; no I/O.

    For a service that is found by a region or a namespace. ``expected``: the reason that refuses any other form.
    Raises ConfigError, ``key`` "url" or the option's name; no error quotes a value.
    """
    parts = _split(url, expected)
    if parts.path.strip("/") or parts.fragment or "@" in parts.netloc or ":" in parts.netloc:
        raise ConfigError(key="url", reason=expected)
    return parts.netloc, _with_query(options, parts.query)


def _first_host(url: str, expected: str) -> tuple[SplitResult, list[str]]:
    """The parts of ``url`` with the first of its hosts alone, and all hosts: Python 3.13 refuses one in brackets beside
    others."""
    before, slashes, after = url.partition("//")
    authority = re.split("[/?#]", after, maxsplit=1)[0]
    user, at, hosts = authority.rpartition("@")
    addresses = hosts.split(",")
    rest = after.removeprefix(authority)
    return _split(f"{before}{slashes}{user}{at}{addresses[0]}{rest}", expected), addresses


def _split(url: str, expected: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise ConfigError(key="url", reason=expected) from None


def _with_query(options: Mapping[str, Any], query: str) -> OptionMap:
    all_options = OptionMap(options, texts=True)
    for key, value in parse_qsl(query, keep_blank_values=True):
        all_options.add(key, value)
    return all_options


def read_tls(url: BrokerUrl) -> Tls | None:
    """The TLS options; None for a URL without TLS, where they are refused. Raises ConfigError."""
    options = url.options
    if not url.secure:
        for key in _TLS_KEYS:
            options.refuse(key, f"TLS needs a URL that starts with {url.secure_scheme}://")
        return None
    if "ssl_certfile" not in options:
        options.refuse("ssl_keyfile", "ssl_certfile is expected beside it")
    return Tls(
        ca_certs=options.read("ssl_ca_certs", TEXT, "") or None,
        certfile=options.read("ssl_certfile", TEXT, "") or None,
        keyfile=options.read("ssl_keyfile", TEXT, "") or None,
        verify=options.read("ssl_cert_reqs", choice("required", "none"), "required") == "required",
        check_hostname=options.read("ssl_check_hostname", BOOLEAN, True),
    )


def _unreadable(keys: str, error: OSError) -> OSError:
    return OSError(f"{keys}: {error.strerror or error}")
