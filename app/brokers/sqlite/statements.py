"""The statements of ``sqlite.sql`` by name."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources

WIDEST = 256
"""The most rows that one widened INSERT carries."""


def _load() -> dict[str, str]:
    text = resources.files("app.brokers.sqlite").joinpath("sqlite.sql").read_text("utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


SQL = _load()


def steps(name: str) -> list[str]:
    """The single statements of a step of the schema."""
    return [statement for statement in map(str.strip, SQL[name].split(";")) if statement]


@lru_cache(maxsize=64)
def widened(name: str, rows: int) -> str:
    """The ``INSERT … VALUES (…)`` called ``name``, for ``rows`` rows at once."""
    head, _, row = SQL[name].rpartition("VALUES ")
    return f"{head}VALUES {', '.join([row] * rows)}"
