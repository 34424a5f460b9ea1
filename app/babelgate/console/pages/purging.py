"""A purge: how many messages it would remove, the name of the queue as the confirmation, and what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from babelgate.console.answers import PageAnswer
from babelgate.console.visits import Visit
from babelgate.errors import UnsupportedByBroker


class Purge(NamedTuple):
    """``noun``: one of what is removed. ``detail``: a sentence about it. ``path``: the page below ``/console/`` that
    leads to the form. ``remove``: the operation of the gateway, which takes the caller, the queue and ``dry_run``."""

    noun: str
    detail: str
    path: str
    remove: Callable[..., Awaitable[int]]


async def ask(visit: Visit, purge: Purge, *, refused: bool = False) -> PageAnswer:
    """The form, with the number that a purge would remove now. ``refused``: another text was typed."""
    queue = visit.parameters["queue"]
    count: int | None = None
    try:
        count = await purge.remove(visit.caller, queue, dry_run=True)
    except UnsupportedByBroker as error:
        if error.facts.get("pointer") != "/dry_run":
            raise
    shown: dict[str, Any] = {"queue": queue, "purge": purge, "count": count, "refused": refused}
    return visit.page("purge.html", status=400 if refused else 200, **shown)


async def act(visit: Visit, purge: Purge) -> PageAnswer:
    """Purge the queue whose name was typed; the form again for another text."""
    queue = visit.parameters["queue"]
    if visit.form.get("typed", "").strip() != queue:
        return await ask(visit, purge, refused=True)
    removed = await purge.remove(visit.caller, queue)
    words = f"{purge.noun} of {queue} was" if removed == 1 else f"{purge.noun}s of {queue} were"
    return visit.see_other(purge.path, f"Purged: {removed:,} {words} removed.")
