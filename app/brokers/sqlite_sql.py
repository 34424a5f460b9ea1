"""The statements of ``sqlite.sql`` by name."""

from __future__ import annotations

import re
import sqlite3
from functools import lru_cache
from importlib import resources

WIDEST = 256
"""The most rows that one widened INSERT carries."""


def _load() -> dict[str, str]:
    text = resources.files("app.brokers").joinpath("sqlite.sql").read_text("utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


SQL = _load()


def steps(name: str) -> list[str]:
    """The single statements of a step of the schema; that of a trigger holds semicolons."""
    statements = [""]
    for piece in SQL[name].split(";")[:-1]:
        statements[-1] += f"{piece};"
        if sqlite3.complete_statement(statements[-1]):
            statements.append("")
    return statements[:-1]


@lru_cache(maxsize=2 * WIDEST)
def widened(name: str, rows: int) -> str:
    """The ``INSERT … VALUES (…)`` called ``name``, for ``rows`` rows at once."""
    head, _, row = SQL[name].rpartition("VALUES ")
    return f"{head}VALUES {', '.join([row] * rows)}"
