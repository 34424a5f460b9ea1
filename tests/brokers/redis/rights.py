"""The rights that the gateway needs as a user of Redis: commands by the text of its code and scripts, and keys."""

from __future__ import annotations

import re
from pathlib import Path

_FOLDER = Path(__file__).parents[3] / "app" / "babelgate" / "brokers" / "redis"
_IN_SCRIPTS = re.compile(r"redis\.p?call\('([A-Z]+)'|spread\(\w+, '([A-Z]+)'|'([LR]PUSH)'")
_IN_PYTHON = re.compile(
    r'(?:read|call|send|_allowed|_run)\(b"([A-Z]+)"(?:, b"(GET)")?|= \(b"([A-Z]{3,})", queue, queue'
)

QUEUES = {"list": "emails", "laravel": "shop"}
KEYS = {
    "list": ("emails", "emails:*", "emails.dlq"),
    "laravel": ("queues:shop", "queues:shop:*", "queues:shop.dlq", "queues:shop.dlq:notify"),
    "": ("babelgate:*",),
}
"""Patterns of the keys of a queue of each layout, and those of all queues together."""


def commands() -> list[str]:
    """The commands, as an access list names them."""
    found: set[str] = set()
    for path in _FOLDER.rglob("*.lua"):
        for names in _IN_SCRIPTS.findall(path.read_text("utf-8")):
            found |= set(names)
    for path in _FOLDER.rglob("*.py"):
        for name, subcommand, other in _IN_PYTHON.findall(path.read_text("utf-8")):
            found |= {f"{name}|{subcommand}" if subcommand else name, other}
    return sorted(name.lower() for name in found - {""})
