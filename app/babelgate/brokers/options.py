"""Reads the options of brokers and routes, from YAML values or a URL's query, into typed values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from babelgate.errors import ConfigError
from babelgate.jsontext import digits, is_number

TIMEOUT_SECONDS = 2.0
"""How long a call to a broker may take where nothing else is configured."""

TIMEOUT_BOUNDS = (0.5, 30.0)
"""The bounds of ``timeout_seconds``, ours. The upper one is well below
:data:`babelgate.brokers.idempotency_store.RESERVED_SECONDS`, for which a reserved idempotency key counts as under
way."""

SecretOption = Literal["connection_string", "management_password", "oauth2_client_secret", "password", "token"]
"""The options whose values are secrets, of all brokers. :meth:`OptionMap.secret` reads them and no other, and Helm's
chart lets none of them into a ConfigMap."""

Value = TypeVar("Value")
Other = TypeVar("Other")
Word = TypeVar("Word", bound=str)


@dataclass(frozen=True, slots=True)
class OptionReader(Generic[Value]):
    """Reads one value: ``read`` returns it typed, or raises ValueError. ``expected`` names the accepted values.

    ``parse`` turns a text of a URL's query into the value that YAML would give; it may return the text unchanged.
    """

    expected: str
    read: Callable[[object], Value]
    parse: Callable[[str], object] = lambda text: text


class OptionMap:
    """The options given for one broker or route. Each is read once, by key; :meth:`finish` refuses the others.

    ``texts``: a number or boolean may also be given as a text, as in a URL's query. Every method raises ConfigError
    with ``key`` = the option's name; its reason never quotes the value, which may be a secret.
    """

    def __init__(self, given: Mapping[str, Any], *, texts: bool = False) -> None:
        self._given: dict[str, Any] = dict(given)
        self._texts = texts
        self._known: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._given

    def add(self, key: str, value: object) -> None:
        """Add an option from another place. Refuses one that is given already."""
        if key in self._given:
            raise ConfigError(key=key, reason="it is given twice: in the URL and in the options, or twice in the URL")
        self._given[key] = value

    def read(self, key: str, reader: OptionReader[Value], default: Value) -> Value:
        """The option ``key``, or ``default`` where it is left out."""
        self._known.append(key)
        if key not in self._given:
            return default
        value = self._given[key]
        try:
            return reader.read(reader.parse(value) if self._texts and isinstance(value, str) else value)
        except ValueError:
            raise ConfigError(key=key, reason=f"{reader.expected} is expected") from None

    def secret(self, key: SecretOption, default: str = "") -> str:
        """The secret option ``key``, a text that is not empty, or ``default`` where it is left out."""
        return self.read(key, TEXT, default)

    def refuse(self, key: str, reason: str) -> None:
        """Refuse the option ``key`` with ``reason`` where it is given."""
        if key in self._given:
            raise ConfigError(key=key, reason=reason)

    def finish(self, place: str = "") -> None:
        """Refuse members that were not read. ``place`` ends the word "unknown" in the reason: " in the layout list"."""
        for key in self._given:
            if key not in self._known:
                known = f"known are {', '.join(self._known)}" if self._known else "none is known"
                raise ConfigError(key=key, reason=f"unknown{place}; {known}")


def timeout_of(options: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
    """``timeout_seconds``, which every driver takes, and the other options. Raises ConfigError."""
    others = dict(options)
    given = {"timeout_seconds": others.pop("timeout_seconds")} if "timeout_seconds" in others else {}
    return OptionMap(given).read("timeout_seconds", seconds(*TIMEOUT_BOUNDS), TIMEOUT_SECONDS), others


def seconds(least: float, most: float) -> OptionReader[float]:
    """A number of seconds from ``least`` to ``most``."""
    return OptionReader(
        f"a number of seconds from {least:g} to {most:g}", lambda value: _within(value, least, most), _number
    )


def _positive(value: object) -> float:
    number = _float(value)
    if number <= 0:
        raise ValueError
    return number


def whole(least: int, most: int | None = None, what: str = "a whole number") -> OptionReader[int]:
    """A whole number from ``least``, to ``most`` where it is given. ``what`` names it in the error."""

    def read(value: object) -> int:
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
            or (most is not None and value > most)
        ):
            raise ValueError
        return value

    return OptionReader(f"{what} from {least}" + ("" if most is None else f" to {most}"), read, _digits)


def choice(*words: Word) -> OptionReader[Word]:
    """One of ``words``, at least two."""

    def read(value: object) -> Word:
        for word in words:
            if value == word:
                return word
        raise ValueError

    return OptionReader(f"{', '.join(words[:-1])} or {words[-1]}", read)


def optional(reader: OptionReader[Other], meaning: str) -> OptionReader[Other | None]:
    """What ``reader`` reads, or null. ``meaning`` says what null stands for: "none"."""

    def read(value: object) -> Other | None:
        return None if value is None else reader.read(value)

    return OptionReader(f"{reader.expected}, or null for {meaning},", read, reader.parse)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _any_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _float(value: object) -> float:
    if not is_number(value):
        raise ValueError
    return float(value)


def _within(value: object, least: float, most: float) -> float:
    number = _float(value)
    if not least <= number <= most:
        raise ValueError
    return number


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _digits(text: str) -> object:
    number = digits(text)
    return text if number is None else number


TEXT = OptionReader("a text", _text)
"""A text that is not empty."""

ANY_TEXT = OptionReader("a text", _any_text)
"""A text that may be empty."""

BOOLEAN = OptionReader("true or false", _boolean, lambda text: {"true": True, "false": False}.get(text.lower(), text))

POSITIVE_SECONDS = OptionReader("a number of seconds above 0", _positive, _number)
