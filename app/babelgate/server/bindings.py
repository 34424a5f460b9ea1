"""Makes the bindings of the configured brokers, and gives them the keys of bodies at rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from babelgate.brokers.address import address_of
from babelgate.brokers.binding import Binding
from babelgate.brokers.registry import connect
from babelgate.brokers.settings import EncryptsBodies
from babelgate.clock import Clock
from babelgate.config.sections import BrokerSettings
from babelgate.config.settings import Settings
from babelgate.errors import ConfigError
from babelgate.privacy.ciphers import BodyCipher, BodyKey


def connect_brokers(settings: Settings, clock: Clock) -> dict[str, Binding]:
    """The binding of each broker, by name; no I/O. Raises ConfigError naming a key of ``brokers``."""
    bindings = {
        name: connect(name, broker.url, {**broker.options, "timeout_seconds": broker.timeout_seconds}, clock)
        for name, broker in settings.brokers.items()
    }
    encrypting(settings, bindings)
    return bindings


def opened_before(opened: Sequence[tuple[BrokerSettings, Binding]], wanted: BrokerSettings, made: Binding) -> Binding:
    """The last of the connections in ``opened`` that has the settings ``wanted`` of the broker of ``made``; ``made`` if
    none has."""
    for broker, binding in reversed(opened):
        if binding.name == made.name and broker.model_copy(update={"required": wanted.required}) == wanted:
            return binding
    return made


def broker_addresses(settings: Settings) -> dict[str, str]:
    """The address of each broker, by name: which changes of it lead to another server."""
    return {name: address_of(name, broker.url, broker.options) for name, broker in settings.brokers.items()}


def same_servers(before: Settings, now: Settings) -> set[str]:
    """The brokers that lead to the same server by both configurations."""
    addresses = broker_addresses(before)
    return {name for name, address in broker_addresses(now).items() if addresses.get(name) == address}


def body_cipher(settings: Settings) -> BodyCipher:
    """What encrypts and decrypts bodies at rest, with the keys of the configuration."""
    return BodyCipher([BodyKey(key.id, key.secret.get_secret_value().encode()) for key in settings.body_keys])


def encrypting(settings: Settings, bindings: Mapping[str, Binding]) -> None:
    """Give the keys of bodies to the bindings that keep bodies in files of their own.

    Raises ConfigError naming ``encrypt`` of a route of which the gateway keeps no body on a disk.
    """
    cipher = body_cipher(settings)
    for binding in bindings.values():
        if isinstance(binding, EncryptsBodies):
            binding.use_body_keys(cipher)
    for key, route in settings.routes.items():
        places = [route.broker] if route.parking is None else [route.broker, route.parking]
        if route.encrypt and not any(isinstance(bindings[each], EncryptsBodies) for each in places):
            reason = f"the broker {route.broker!r} itself keeps its messages: only bodies in a file of the gateway "
            raise ConfigError(key=f"{key}.encrypt", reason=f"{reason}(SQLite) are encrypted")
