"""The routes that the modules of pages consist of."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal
from urllib.parse import unquote

from msgspec import Struct

from babelgate.console.answers import PageAnswer
from babelgate.console.visits import Visit
from babelgate.errors import InvalidParameter

FORM_BYTES = 65_536
"""Maximum size of an ordinary form."""


class PageRoute(Struct, frozen=True, kw_only=True):
    """An address of the console and its handler.

    ``path``: below ``/console/``, with parameters in braces, each of which is one segment. ``handler``: called with the
    visit; may raise any BabelgateError, which becomes a page in words. ``menu``: the text of its link in the
    navigation; empty: it has none. ``writes``: a POST changes something, so that ``read_only`` refuses it.
    ``needs_user``: only for users who have signed in. ``form_bytes``: maximum size of its form.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: Callable[[Visit], Awaitable[PageAnswer]]
    menu: str = ""
    writes: bool = True
    needs_user: bool = True
    form_bytes: int = FORM_BYTES


class RouteTable:
    """Finds the route of a path."""

    def __init__(self, routes: Sequence[PageRoute]) -> None:
        self.menu = [(route.path, route.menu) for route in routes if route.menu]
        self._patterns: dict[str, tuple[re.Pattern[str], dict[str, PageRoute]]] = {}
        for route in routes:
            pattern = re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(route.path)))
            self._patterns.setdefault(route.path, (pattern, {}))[1][route.method] = route

    def find(self, path: str) -> tuple[Mapping[str, PageRoute], Mapping[str, str]] | None:
        """The routes of ``path`` by method, and the values of its parameters; None for an unknown path.

        Raises InvalidParameter for a value that is not UTF-8.
        """
        for pattern, methods in self._patterns.values():
            match = pattern.fullmatch(path)
            if match is not None:
                return methods, {name: _unescaped(name, value) for name, value in match.groupdict().items()}
        return None


def _unescaped(name: str, value: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise InvalidParameter(name=name, reason="it is not UTF-8") from None
