"""Finds the binding for a broker's URL. A client library is imported only when its broker is configured."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from babelgate.brokers.binding import Binding
from babelgate.clock import Clock
from babelgate.errors import ConfigError
from babelgate.extras import how_to_install

_SYSTEMS = {"sqs": "aws_sqs", "artemis": "activemq"}
"""Artemis is Apache ActiveMQ Artemis, and OpenTelemetry's registry has one name for both brokers of ActiveMQ. The
registry has neither SQLite nor Redis."""


@dataclass(frozen=True, slots=True)
class Driver:
    """One kind of broker. ``kind``: its package below ``babelgate.brokers``. ``embedded``: it is a file of this
    machine.

    Its module ``binding`` exports ``connect(name, url, options, clock) -> Binding``; ``extra`` installs the client.

    Every driver takes the option ``timeout_seconds`` (:func:`babelgate.brokers.options.timeout_of`) beside its own.
    """

    kind: str
    extra: str | None = None
    embedded: bool = False

    @property
    def module(self) -> str:
        """The module that exports ``connect``."""
        return f"babelgate.brokers.{self.kind}.binding"

    @property
    def system(self) -> str:
        """OpenTelemetry's name of the system:
        https://opentelemetry.io/docs/specs/semconv/registry/attributes/messaging/#messaging-system"""
        return _SYSTEMS.get(self.kind, self.kind)


_REDIS = Driver("redis", "redis")
_RABBITMQ = Driver("rabbitmq", "rabbitmq")
_SQS = Driver("sqs", "sqs")
_KAFKA = Driver("kafka", "kafka")
_PULSAR = Driver("pulsar", "pulsar")
_ARTEMIS = Driver("artemis", "artemis")

SCHEMES: Mapping[str, Driver] = {
    "sqlite": Driver("sqlite", embedded=True),
    "redis": _REDIS,
    "rediss": _REDIS,
    "amqp": _RABBITMQ,
    "amqps": _RABBITMQ,
    "sqs": _SQS,
    "servicebus": Driver("servicebus", "servicebus"),
    "kafka": _KAFKA,
    "kafka+ssl": _KAFKA,
    "pulsar": _PULSAR,
    "pulsar+ssl": _PULSAR,
    "artemis": _ARTEMIS,
    "artemis+ssl": _ARTEMIS,
    "redis+sentinel": _REDIS,
    "redis+cluster": _REDIS,
}

_REFUSED = ("redis+sentinel", "redis+cluster")
"""Schemes whose driver only explains why they are not supported."""

_OTHER_NAMES = {"sb": "servicebus", "valkey": "redis", "valkeys": "rediss"}
"""Schemes of other programs for the same brokers: Azure's connection strings begin with ``Endpoint=sb://``."""


def driver(name: str, url: str) -> Driver:
    """The driver for the URL of the broker ``name``. Raises ConfigError for a scheme that is not known."""
    scheme, mark, _ = url.partition("://")
    found = SCHEMES.get(scheme.lower())
    if not mark or found is None:
        # The text is not quoted: it may contain a secret.
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES if scheme not in _REFUSED)
        reason = f"{_nearest(url)}the URL must start with one of {known}"
        raise ConfigError(key=f"brokers.{name}.url", reason=reason)
    return found


def _nearest(url: str) -> str:
    """A question for the scheme that is nearly the one of ``url``, or belongs to the kind of broker that stands there.

    Empty if there is none.
    """
    offered = [scheme for scheme in SCHEMES if scheme not in _REFUSED]
    meant = {name: scheme for scheme in reversed(offered) for name in (SCHEMES[scheme].kind, SCHEMES[scheme].system)}
    meant |= _OTHER_NAMES | {scheme: scheme for scheme in offered}
    given = url.partition(":")[0].lower()
    # Exchanged letters can be further from a scheme than another scheme is.
    near = [name for name in meant if sorted(name) == sorted(given)] or difflib.get_close_matches(given, meant, n=1)
    return f"did you mean {meant[near[0]]}://? " if near else ""


def connect(name: str, url: str, options: Mapping[str, Any], clock: Clock) -> Binding:
    """The binding of the broker ``name``; no I/O. Raises ConfigError, also where the client is not installed."""
    wanted = driver(name, url)
    try:
        binding: Binding = importlib.import_module(wanted.module).connect(name, url, options, clock)
    except ImportError as error:
        # The client for Azure says so itself where a library that it needs is missing.
        if wanted.extra is None or (error.name or "").startswith("babelgate."):
            raise
        reason = f"the client is not installed: {how_to_install(wanted.extra)}"
        raise ConfigError(key=f"brokers.{name}", reason=reason, extra=wanted.extra) from None
    except ConfigError as error:
        key = str(error.key)
        place = key if key.startswith("brokers.") else f"brokers.{name}.{key}"
        raise ConfigError(**error.facts | {"key": place}) from None
    return binding
