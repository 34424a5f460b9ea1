"""Reads a broker's URL and options into the configuration of the Kafka clients.

Keys of librdkafka: https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from babelgate.brokers.options import BOOLEAN, TEXT, OptionMap, OptionReader, choice
from babelgate.brokers.url import Tls, read_tls, read_url
from babelgate.errors import ConfigError

GROUP = "babelqueue"
"""The group of the SDKs of BabelQueue."""

_FORM = "kafka[+ssl]://[user[:password]@]host[:port][,host[:port]…]"
_PORT = 9092

Protocol = Literal["consumer", "classic"]
_PROTOCOL: OptionReader[Protocol] = choice("consumer", "classic")
_MECHANISM = choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach a cluster.

    ``client``: the configuration that all clients of librdkafka share: addresses, TLS and credentials.
    ``group_protocol``: how the members of the consumer group agree: ``consumer`` (KIP-848) needs brokers from 4.0.
    ``group``: the name of the consumer group, by default that of the SDKs of BabelQueue.
    ``instance_id``: the name of a static member, which keeps its partitions over a restart; None: a new member. Only
    with ``group_protocol`` "consumer".
    ``reinject``: this gateway moves records back from the retry tiers; otherwise another program does.
    """

    servers: str
    client: Mapping[str, Any] = field(repr=False)
    group_protocol: Protocol
    group: str
    instance_id: str | None
    reinject: bool
    tls: Tls | None


def settings_of(url: str, options: Mapping[str, Any]) -> KafkaSettings:
    """The settings in ``kafka[+ssl]://[user[:password]@]host[:port][,…]`` and ``options``; no I/O.

    ``options`` may also stand in the URL's query. Raises ConfigError, ``key`` "url" or the option's name; no error
    quotes a value.
    """
    target = read_url(url, options, form=_FORM)
    if target.path:
        raise ConfigError(key="url", reason=f"{_FORM} is expected")
    servers = ",".join(_address(host, port or _PORT) for host, port in target.hosts)
    tls = read_tls(target)
    given = target.options
    client: dict[str, Any] = {"bootstrap.servers": servers, **_tls(tls), **_sasl(given)}
    client["security.protocol"] = f"{'SASL_' if 'sasl.mechanism' in client else ''}{'SSL' if tls else 'PLAINTEXT'}"
    protocol = given.read("group_protocol", _PROTOCOL, "consumer")
    if protocol == "classic":
        given.refuse("instance_id", "it belongs to group_protocol consumer")
    given.refuse("share_lock_seconds", "share groups were removed; leave this option out")
    settings = KafkaSettings(
        servers=servers,
        client=client,
        group_protocol=protocol,
        group=given.read("group", TEXT, GROUP),
        instance_id=given.read("instance_id", TEXT, "") or None,
        reinject=given.read("reinject", BOOLEAN, True),
        tls=tls,
    )
    given.finish()
    return settings


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tls(tls: Tls | None) -> dict[str, Any]:
    if tls is None:
        return {}
    named = {
        "ssl.ca.location": tls.ca_certs,
        "ssl.certificate.location": tls.certfile,
        "ssl.key.location": tls.keyfile or tls.certfile,
        "enable.ssl.certificate.verification": tls.verify,
        "ssl.endpoint.identification.algorithm": "https" if tls.verify and tls.check_hostname else "none",
    }
    return {key: value for key, value in named.items() if value is not None}


def _sasl(given: OptionMap) -> dict[str, Any]:
    """The credentials. With OAUTHBEARER they are those of the client at the server of tokens."""
    if "sasl_mechanism" not in given:
        for key in ("username", "password"):
            given.refuse(key, "sasl_mechanism is expected beside it")
    mechanism = given.read("sasl_mechanism", _MECHANISM, "PLAIN") if "sasl_mechanism" in given else None
    if mechanism != "OAUTHBEARER":
        for key in ("oauth_token_url", "oauth_scope"):
            given.refuse(key, "it belongs to sasl_mechanism OAUTHBEARER")
    username, password = given.read("username", TEXT, ""), given.secret("password")
    token_url, scope = given.read("oauth_token_url", TEXT, ""), given.read("oauth_scope", TEXT, "")
    if mechanism is None:
        return {}
    for key, value in (("username", username), ("password", password)):
        if not value:
            raise ConfigError(key=key, reason=f"it is expected with sasl_mechanism {mechanism}")
    if mechanism != "OAUTHBEARER":
        return {"sasl.mechanism": mechanism, "sasl.username": username, "sasl.password": password}
    if not token_url:
        raise ConfigError(key="oauth_token_url", reason="the URL that grants tokens is expected with OAUTHBEARER")
    client = {
        "sasl.mechanism": mechanism,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": username,
        "sasl.oauthbearer.client.secret": password,
        "sasl.oauthbearer.token.endpoint.url": token_url,
    }
    return client | ({"sasl.oauthbearer.scope": scope} if scope else {})
