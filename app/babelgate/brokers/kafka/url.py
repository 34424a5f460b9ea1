"""Reads a broker's URL and options into the configuration of the Kafka clients, and a route's into a topic.

Keys of librdkafka: https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal
from urllib.parse import unquote

from babelgate.brokers.options import BOOLEAN, TEXT, OptionMap, OptionReader, choice, whole
from babelgate.brokers.url import BrokerUrl, Tls, read_tls, read_url
from babelgate.errors import ConfigError
from babelgate.jsontext import is_number

GROUP = "babelqueue"
"""The group of the SDKs of BabelQueue."""

CLIENT: Mapping[str, Any] = {"log_level": 0, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500}
"""What all clients have in common: the gateway logs errors, and an outage ends soon after the broker is back."""

_FORM = "kafka[+ssl]://[user[:password]@]host[:port][,host[:port]…]"
_TOPIC_FORM = f"{_FORM}/topic"
_PORT = 9092

Protocol = Literal["consumer", "classic"]
_PROTOCOL: OptionReader[Protocol] = choice("consumer", "classic")
_MECHANISM = choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

DEAD_SUFFIX = ".dlq"
"""The SDKs of BabelQueue write dead letters to the topic ``<topic>.dlq``."""

RETRY_DELAYS_SECONDS = (5.0, 30.0, 300.0, 1800.0)
"""The retry tiers of the SDKs of BabelQueue."""

MAX_HELD = 10_000
"""Records of a partition between its committed offset and the last one that was handed out. What was acked among them
fits in the metadata of a commit, 4,096 bytes by default:
https://kafka.apache.org/documentation/#brokerconfigs_offset.metadata.max.bytes"""

MAX_HELD_BOUND = 20_000
_MAX_TIERS = 99
_MOST_PARTITIONS = 100_000
"""The client refuses to create a topic with more:
https://github.com/confluentinc/librdkafka/blob/master/src/rdkafka_int.h"""

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_MAX_NAME = 249
"""https://github.com/apache/kafka/blob/trunk/clients/src/main/java/org/apache/kafka/common/internals/Topic.java"""

_CREATE = choice("never", "missing")
_NO_SHARE_GROUPS = (
    "share groups were removed, and every topic is consumed by the consumer group; leave this option out, after the "
    "steps in docs/upgrading.md if it was share"
)


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

    client: Mapping[str, Any] = field(repr=False)
    group_protocol: Protocol
    group: str
    instance_id: str | None
    reinject: bool


def settings_of(url: str, options: Mapping[str, Any]) -> KafkaSettings:
    """The settings in ``kafka[+ssl]://[user[:password]@]host[:port][,…]`` and ``options``; no I/O.

    ``options`` may also stand in the URL's query. Raises ConfigError, ``key`` "url" or the option's name; no error
    quotes a value.
    """
    target = read_url(url, options, form=_FORM)
    if target.path:
        raise ConfigError(key="url", reason=f"{_FORM} is expected")
    client, given = _client_of(target), target.options
    protocol = given.read("group_protocol", _PROTOCOL, "consumer")
    if protocol == "classic":
        given.refuse("instance_id", "it belongs to group_protocol consumer")
    given.refuse("share_lock_seconds", "share groups were removed; leave this option out")
    settings = KafkaSettings(
        client=client,
        group_protocol=protocol,
        group=given.read("group", TEXT, GROUP),
        instance_id=given.read("instance_id", TEXT, "") or None,
        reinject=given.read("reinject", BOOLEAN, True),
    )
    given.finish()
    return settings


def topic_of(url: str, options: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The configuration that all clients share, and the topic, of a URL of :data:`_TOPIC_FORM`; no I/O.

    Options of the consumer group are refused. Raises ConfigError as :func:`settings_of` does.
    """
    target = read_url(url, options, form=_TOPIC_FORM)
    topic = unquote(target.path)
    if not _NAME.fullmatch(topic) or topic in (".", "..") or len(topic) > _MAX_NAME:
        reason = f"{_TOPIC_FORM} is expected; a topic has at most {_MAX_NAME} letters, digits, . _ and -"
        raise ConfigError(key="url", reason=reason)
    client = _client_of(target)
    target.options.finish()
    return client, topic


@dataclass(frozen=True, slots=True)
class KafkaQueue:
    """A topic with the validated options of its route.

    ``partitions`` and ``replication_factor`` of topics that the gateway creates; None: the broker's own defaults.
    ``create``: the gateway creates missing topics. ``retry_delays_seconds``: the delay of each retry tier, ascending;
    without any, nothing can be delayed. ``max_held``: see MAX_HELD.
    """

    name: str
    create: bool = False
    partitions: int | None = None
    replication_factor: int | None = None
    retry_delays_seconds: tuple[float, ...] = RETRY_DELAYS_SECONDS
    max_held: int = MAX_HELD

    @property
    def dead(self) -> str:
        """The topic of dead letters."""
        return self.name + DEAD_SUFFIX

    def tier(self, index: int) -> str:
        """The topic of the retry tier ``index``, from 0."""
        return f"{self.name}.retry.{index + 1}"

    @property
    def tiers(self) -> tuple[str, ...]:
        """The topics of the retry tiers."""
        return tuple(map(self.tier, range(len(self.retry_delays_seconds))))


def queue_of(native_name: str, options: Mapping[str, Any]) -> KafkaQueue:
    """The topic ``native_name`` with a route's options; the defaults are those of :class:`KafkaQueue`.

    Raises ConfigError, ``key`` "native_name" or the option's name.
    """
    given = OptionMap(options)
    if not _NAME.fullmatch(native_name) or native_name in (".", ".."):
        raise ConfigError(key="native_name", reason="a name on Kafka has letters, digits, . _ and -")
    create = given.read("create", _CREATE, "never") == "missing"
    if not create:
        for key in ("partitions", "replication_factor"):
            given.refuse(key, "create: missing is expected beside it")
    given.refuse("consume", _NO_SHARE_GROUPS)
    queue = KafkaQueue(
        native_name,
        create,
        given.read("partitions", whole(1, _MOST_PARTITIONS), 0) or None,
        given.read("replication_factor", whole(1, 32767), 0) or None,
        given.read("retry_delays_seconds", _DELAYS, RETRY_DELAYS_SECONDS),
        given.read("max_held", whole(1, MAX_HELD_BOUND), MAX_HELD),
    )
    given.finish()
    longest = max((queue.dead, *queue.tiers), key=len)
    if len(longest) > _MAX_NAME:
        reason = f"a name on Kafka has at most {_MAX_NAME} characters, with {longest[len(native_name) :]} behind it"
        raise ConfigError(key="native_name", reason=reason)
    return queue


def _delays(value: object) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or len(value) > _MAX_TIERS:
        raise ValueError
    delays = []
    for each in value:
        if not is_number(each, 0) or not each:
            raise ValueError
        delays.append(float(each))
    if any(later <= sooner for sooner, later in pairwise(delays)):
        raise ValueError
    return tuple(delays)


_DELAYS = OptionReader(f"a list of at most {_MAX_TIERS} numbers of seconds, ascending and above 0,", _delays)


def _client_of(target: BrokerUrl) -> dict[str, Any]:
    """The configuration that all clients of a cluster share."""
    servers = ",".join(_address(host, port or _PORT) for host, port in target.hosts)
    tls = read_tls(target)
    client: dict[str, Any] = {**CLIENT, "bootstrap.servers": servers, **_tls(tls), **_sasl(target.options)}
    client["security.protocol"] = f"{'SASL_' if 'sasl.mechanism' in client else ''}{'SSL' if tls else 'PLAINTEXT'}"
    return client


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
