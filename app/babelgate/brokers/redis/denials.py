"""Says which command and which key an access list denies: Redis itself names at most one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

_DENIED = (
    "no permissions to run",
    "can't run this command",
    "ermissions to access",
    "can't access at least one of the keys",
)
"""What Redis says of a command and of a key: https://github.com/redis/redis/blob/7.0.15/src/acl.c and script.c."""

_WITHOUT_KEY = ("CONFIG", "INFO", "PING")

_LINE = re.compile(r"@user_script: ?(\d+)")
_NAME = re.compile(r"redis\.call\('([A-Z]+)'")
_SPREAD = re.compile(r"spread\(\w+, '([A-Z]+)'")
_PUSHED = re.compile(r"'([LR]PUSH)'")
_FIRST_KEY = re.compile(r"redis\.call\('[A-Z]+', ((?:[\w.\[\]]+|'[^']*')(?: \.\. (?:[\w.]+|'[^']*'))*)")
_OF_LAYOUT = re.compile(r"(list|laravel)\.(\w+)")


def denial_of(error: Exception, command: Sequence[Any], source: bytes | None) -> str | None:
    """A clause about ``error``, the reply to ``command``; None if no access list caused it.

    ``source``: the text of the script that the command runs.
    """
    said = str(error)
    if not any(words in said for words in _DENIED):
        return None
    name, lines = _text(command[0]), _LINE.findall(said)
    if source is None:
        if name in _WITHOUT_KEY:
            return _clause([" ".join(map(_text, command[:2]))], "")
        return _clause([name], _text(command[1]))
    keys = [_text(key) for key in command[3 : 3 + int(command[2])]]
    if not lines:
        return _clause([name], " and ".join(keys))
    text = source.decode("utf-8")
    line = text.split("\n")[int(lines[-1]) - 1]
    names: Iterable[str] = _NAME.findall(line)
    if not names:
        # The command is in a variable.
        names = sorted(set((_SPREAD if "unpack(command)" in line else _PUSHED).findall(text)))
    found = _FIRST_KEY.search(line)
    parts = [_part_of(part, text, keys[0]) for part in found[1].split(" .. ")] if found else [None]
    shown = f"{keys[0]} or one that begins with it" if None in parts else "".join(map(str, parts))
    return _clause(names, shown)


def _clause(names: Iterable[str], key: str) -> str:
    on = f" with the key {key}" if key else ""
    return f"the access list of the Redis user forbids {' or '.join(names)}{on}. Its rights are in docs/redis.md"


def _part_of(part: str, source: str, queue: str) -> str | None:
    """The value of a part of a key in a script: a literal, the queue, a constant, or what a layout has of this name."""
    if part in ("q", "KEYS[1]"):
        return queue
    if part.startswith("'"):
        return part[1:-1]
    if layout := _OF_LAYOUT.fullmatch(part):
        found = re.search(rf"^local {layout[1]} = \{{.*?\b{layout[2]} = '([^']*)'", source, re.DOTALL | re.MULTILINE)
        return found[1] if found else None
    return None


def _text(argument: object) -> str:
    return argument.decode("utf-8", "replace") if isinstance(argument, bytes) else str(argument)
