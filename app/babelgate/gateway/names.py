"""Names of queues, and the patterns and templates that stand for many of them. All take linear time."""

from __future__ import annotations

import re

from babelgate.errors import InvalidParameter

QUEUE_NAME = re.compile(r"[A-Za-z0-9._-]{1,120}")


def check_queue_name(queue: str, member: str | None = None) -> None:
    """Raise InvalidParameter unless ``queue`` is a legal name. ``member``: of the body; None: it is in the path."""
    if not QUEUE_NAME.fullmatch(queue):
        reason = "a queue name matches [A-Za-z0-9._-]{1,120}"
    elif queue in (".", ".."):
        reason = "HTTP clients remove it from a path before they send it"
    elif queue.endswith(".dlq"):
        reason = "a dead-letter queue is reached through its parent's /dead-letters"
    else:
        return
    raise InvalidParameter(name=member or "queue", reason=reason, pointer=member and f"/{member}")


def is_queue_name(queue: str) -> bool:
    """Whether ``queue`` is a legal name."""
    try:
        check_queue_name(queue)
    except InvalidParameter:
        return False
    return True


class Pattern:
    """A queue pattern: ``*`` stands for any run of characters, the rest for itself."""

    __slots__ = ("_before", "_inner", "_is_exact", "_length", "_rest")

    def __init__(self, text: str) -> None:
        self._before, *inner = text.split("*")
        self._is_exact = not inner
        self._rest = inner.pop() if inner else ""
        self._inner = tuple(inner)
        self._length = len(self._before) + len(self._rest)

    def matches(self, name: str) -> bool:
        """Whether ``name`` is one of the pattern's. A ``*`` in ``name`` is a character like others, so a pattern
        matches another one when it matches all its names."""
        if self._is_exact:
            return name == self._before
        if len(name) < self._length or not (name.startswith(self._before) and name.endswith(self._rest)):
            return False
        # The first place of each part leaves the most room for those after it, so no other place has to be tried.
        at, end = len(self._before), len(name) - len(self._rest)
        for part in self._inner:
            at = name.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True


class Template:
    """A name with the same text inserted in one or more places."""

    __slots__ = ("_fixed", "_parts")

    def __init__(self, parts: list[str]) -> None:
        """``parts``: two or more; the text is inserted between them."""
        self._parts = parts
        self._fixed = sum(map(len, parts))

    def inserted(self, name: str) -> str | None:
        """The text that gives ``name``; None if no text does. It has at least one character."""
        length, odd = divmod(len(name) - self._fixed, len(self._parts) - 1)
        if length < 1 or odd:
            return None
        start = len(self._parts[0])
        text = name[start : start + length]
        return text if text.join(self._parts) == name else None
