"""What differs between two configurations, which of it needs a restart, and how a configuration is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import SecretStr

from babelgate.config.sections import AuthSettings, BrokerSettings
from babelgate.config.settings import Settings
from babelgate.masking import MASK, mask_text, mask_url

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NAMELESS = re.compile(r"(?<=[?&])(?:=[^&#]*|[^=&#]+(?=[&#]|$))")

RELOADED = frozenset(
    {"brokers", "queues", "default", "auth", "body_keys", "rate_limits", "schemas", "cors", "push", "log_level"}
)
"""The sections that a reload applies. Any other change needs a restart, and so do those of :func:`needs_restart`."""

_SHOWN_OF_BROKERS = frozenset({"required", "timeout_seconds"})
_HASHES = frozenset({"sha256"})


def needs_restart(before: Settings, after: Settings) -> list[str]:
    """The keys of changes that a running gateway cannot apply, dotted, as the configuration spells them."""
    found = [
        name for name in Settings.model_fields if name not in RELOADED and getattr(before, name) != getattr(after, name)
    ]
    for name, broker in before.brokers.items():
        other = after.brokers.get(name)
        # Ack tokens name the broker: under another URL its name would lead to other messages.
        if other is not None and _without_required(broker) != _without_required(other):
            found.append(f"brokers.{name}")
    found += _auth(before, after)
    if before.rate_limits.store != after.rate_limits.store:
        found.append("rate_limits.store")
    return found


def _auth(before: Settings, after: Settings) -> Iterator[str]:
    old, new = before.auth, after.auth
    if not isinstance(old, AuthSettings) or not isinstance(new, AuthSettings):
        if old != new:
            yield "auth"
        return
    for name in AuthSettings.model_fields:
        if name not in ("tokens", "certificates") and getattr(old, name) != getattr(new, name):
            yield f"auth.{name}"


def _without_required(broker: BrokerSettings) -> dict[str, Any]:
    return {name: value for name, value in broker.model_dump(mode="python").items() if name != "required"}


def shown(settings: Settings) -> dict[str, Any]:
    """The whole configuration as JSON values, defaults included, with secrets masked. Options of brokers may be
    secrets, so their texts are."""
    tree: dict[str, Any] = _plain(settings.model_dump(mode="python"))
    for name, broker in tree["brokers"].items():
        masked = {"url": settings.brokers[name].masked_url}
        others = ((key, value) for key, value in broker.items() if key != "url")
        tree["brokers"][name] = masked | {
            key: value if key in _SHOWN_OF_BROKERS or not isinstance(value, str) else MASK for key, value in others
        }
    return tree


def _plain(value: object, name: str = "") -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each, str(key)) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        # Their order differs from process to process.
        return sorted(_plain(each, name) for each in value)
    if isinstance(value, list | tuple):
        return [_plain(each, name) for each in value]
    if isinstance(value, SecretStr):
        return MASK
    if value is None or isinstance(value, bool | int | float):
        return value
    return MASK if name in _HASHES else _masked(str(value))


def _masked(text: str) -> str:
    """``text`` as one URL if it begins as one, whatever characters it has; a part of a query without a name is a value
    as a whole. Otherwise with every URL in it masked."""
    return _NAMELESS.sub(MASK, mask_url(text)) if _URL.match(text) else mask_text(text)


def changed_keys(before: Settings, after: Settings) -> list[str]:
    """The keys of two levels that differ, such as ``queues.emails``, secrets included."""
    return list(_changed(before.model_dump(mode="python"), after.model_dump(mode="python"), 2))


def _changed(before: Mapping[str, Any], after: Mapping[str, Any], depth: int, prefix: str = "") -> Iterator[str]:
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if depth > 1 and isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _changed(old, new, depth - 1, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
