"""The values of a broker's options, from YAML or a URL's query: read, or a ValueError that says what is expected."""

from __future__ import annotations


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
