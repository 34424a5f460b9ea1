"""Reads the rights that people write for a token, on the command line and in the console."""

from __future__ import annotations

import re
from collections.abc import Iterable


def grants(lines: Iterable[str]) -> dict[str, list[str]]:
    """The rights by queue or pattern, each once, of lines such as ``orders.*=send,listen`` or ``orders.* send listen``.

    Lines of one queue add up, and blank ones do not count. Any word passes for a right: whoever makes the token checks.
    """
    found: dict[str, list[str]] = {}
    for line in lines:
        queue, *rights = re.split(r"[\s=,]+", line.strip())
        if queue or rights:
            known = found.setdefault(queue, [])
            known += [right for right in dict.fromkeys(rights) if right and right not in known]
    return found
