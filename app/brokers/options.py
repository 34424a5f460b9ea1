"""The values of a broker's options, from YAML or a URL's query: read, or a ValueError that says what is expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.errors import ConfigError

TIMEOUT_SECONDS = 5.0
"""How long a call to a broker may take where nothing else is configured."""

TIMEOUT_BOUNDS = (0.5, 30.0)
"""The bounds of ``timeout_seconds``, ours. The upper one is well below
:data:`app.brokers.idempotency_store.RESERVED_SECONDS`, for which a
reserved idempotency key counts as under way."""


def timeout_of(options: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
    """``timeout_seconds``, which every driver takes, and the other options. Raises ConfigError."""
    others = dict(options)
    seconds = others.pop("timeout_seconds", TIMEOUT_SECONDS)
    least, most = TIMEOUT_BOUNDS
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not least <= seconds <= most:
        raise ConfigError(key="timeout_seconds", reason=f"a number of seconds from {least:g} to {most:g} is expected")
    return float(seconds), others


def text(value: object) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError("a text is expected")
    return value


def switch(value: object) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError("true or false is expected")


def verification(value: object) -> str:
    """``required`` or ``none``: whether a server's certificate is verified."""
    if value not in ("required", "none"):
        raise ValueError("required or none is expected")
    return str(value)
