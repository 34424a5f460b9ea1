"""The list of queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

from babelgate.console.answers import PageAnswer
from babelgate.console.routes import PageRoute
from babelgate.console.visits import Visit
from babelgate.errors import InvalidParameter
from babelgate.gateway.authorization import OPERATORS
from babelgate.gateway.queue_list import MAX_COUNTED, PAGE_ROWS, Grouping, Order, QueueSelection

COLUMNS: Mapping[Order, str] = {
    "queue": "Queue",
    "depth": "Ready",
    "in_flight": "In flight",
    "delayed": "Delayed",
    "dead": "Dead",
    "oldest_age_seconds": "Oldest",
}
"""The columns by which queues are sorted, and their heads."""
_NAMES = ("q", "broker", "route", "state", "group", "sort", "page")
_GROUPINGS: tuple[Grouping, ...] = ("route", "broker")
_MAX_PAGE = 1_000_000

Choice = TypeVar("Choice", bound=str)


async def show(visit: Visit) -> PageAnswer:
    """A page of the list, or its live part."""
    query = {name: visit.query.get(name, "") for name in _NAMES}
    paused = bool(query["state"]) and _one_of("state", query["state"], ["paused"]) == "paused"
    selection = QueueSelection(text=query["q"], broker=query["broker"], route=query["route"], paused=paused)
    group = _one_of("group", query["group"], _GROUPINGS) if query["group"] else None
    descending = query["sort"].startswith("-")
    order = _one_of("sort", query["sort"].removeprefix("-") or "queue", COLUMNS)
    number = _page_number(query["page"])
    circuits = visit.gateway.outages.circuits
    shared: dict[str, Any] = {
        "query": query,
        "address": _addresses(query),
        "columns": COLUMNS,
        "brokers": sorted(visit.gateway.bindings) if visit.caller.patterns(*OPERATORS) else [],
        "open": {name for name, circuit in circuits.items() if circuit.is_open},
        "order": order,
        "descending": descending,
        "most_sorted": MAX_COUNTED,
    }
    listing = visit.gateway.queue_list
    if group is not None:
        groups = await listing.groups(visit.caller, selection, group)
        return visit.page("queues.html", "queues_live.html", groups=groups, by=group, found=None, **shared)
    found = await listing.page(visit.caller, selection, order, descending=descending, number=number)
    return visit.page(
        "queues.html",
        "queues_live.html",
        groups=None,
        found=found,
        number=number,
        first=(number - 1) * PAGE_ROWS + 1,
        last=(number - 1) * PAGE_ROWS + len(found.queues),
        **shared,
    )


def _addresses(query: Mapping[str, str]) -> Callable[..., str]:
    """A function that makes the address of the list with some parameters changed; each change leads to its first
    page."""

    def address(**changes: str) -> str:
        changed = {**query, "page": "", **changes}
        given = {name: value for name, value in changed.items() if value}
        return f"queues?{urlencode(given)}" if given else "queues"

    return address


def _one_of(name: str, given: str, known: Iterable[Choice]) -> Choice:
    choices = list(known)
    for choice in choices:
        if choice == given:
            return choice
    raise InvalidParameter(name=name, reason=f"must be one of {', '.join(choices)}")


def _page_number(given: str) -> int:
    if not given:
        return 1
    if not (given.isdecimal() and given.isascii() and len(given) < 8 and 1 <= int(given) <= _MAX_PAGE):
        raise InvalidParameter(name="page", reason=f"must be a number from 1 to {_MAX_PAGE}")
    return int(given)


ROUTES = (PageRoute(method="GET", path="queues", handler=show, menu="Queues"),)
