"""The dead letters of queues: which queues have some, what these have in common, and lists of them."""

from __future__ import annotations

from urllib.parse import urlencode

from babelgate.console.answers import PageAnswer
from babelgate.console.conditions import fields_of, group_query, letter_filter
from babelgate.console.pages import purging
from babelgate.console.routes import PageRoute
from babelgate.console.visits import Visit, segment
from babelgate.gateway.queue_list import QueueSelection

_LISTED_LETTERS = 50


async def index(visit: Visit) -> PageAnswer:
    """The queues with the most dead letters."""
    if queue := visit.query.get("queue", "").strip():
        return visit.see_other(letters_path(queue))
    found = await visit.gateway.queue_list.page(visit.caller, QueueSelection(), "dead", descending=True)
    queues = [each for each in found.queues if each.stats.dead != 0 and visit.may("observe", each.queue)]
    return visit.page("dead_letters.html", queues=queues, found=found)


async def groups(visit: Visit) -> PageAnswer:
    """The dead letters of a queue, counted by reason, job and error, and its redrives."""
    queue, cursor = visit.parameters["queue"], visit.query.get("cursor") or None
    letters = visit.gateway.letters
    found = await letters.groups(visit.caller, queue, cursor=cursor)
    info = await visit.gateway.overview.queue(visit.caller, queue)
    return visit.page(
        "letter_groups.html",
        queue=queue,
        base=visit.root + letters_path(queue),
        cursor=cursor,
        found=found,
        groups=[(group, group_query(group)) for group in found.groups],
        dead=info.stats.dead,
        jobs=await letters.jobs_of(visit.caller, queue),
    )


async def listing(visit: Visit) -> PageAnswer:
    """The dead letters of a queue that match a filter, oldest first."""
    queue, cursor = visit.parameters["queue"], visit.query.get("cursor") or None
    matching = letter_filter(visit.query)
    found, after = await visit.gateway.letters.page(visit.caller, queue, matching, _LISTED_LETTERS, cursor)
    fields = fields_of(matching)
    return visit.page(
        "letter_list.html",
        queue=queue,
        base=visit.root + letters_path(queue),
        letters=found,
        fields=fields,
        query=urlencode(fields),
        # A letter is searched from here on.
        place=urlencode({"cursor": cursor} if cursor else {}),
        after=None if after is None else urlencode({**fields, "cursor": after}),
    )


async def ask_purge(visit: Visit) -> PageAnswer:
    """How many dead letters a purge would remove, and the form for it."""
    return await purging.ask(visit, _purge(visit))


async def purge(visit: Visit) -> PageAnswer:
    """Remove all dead letters of a queue whose name was typed."""
    return await purging.act(visit, _purge(visit))


def _purge(visit: Visit) -> purging.Purge:
    return purging.Purge("dead letter", "", letters_path(visit.parameters["queue"]), visit.gateway.letters.purge)


def letters_path(queue: str) -> str:
    """The page with the dead letters of ``queue``."""
    return f"queues/{segment(queue)}/dead-letters"


_BASE = "queues/{queue}/dead-letters"

ROUTES = (
    PageRoute(method="GET", path="dead-letters", handler=index, menu="Dead letters"),
    PageRoute(method="GET", path=_BASE, handler=groups),
    PageRoute(method="GET", path=f"{_BASE}/list", handler=listing),
    PageRoute(method="GET", path=f"{_BASE}/purge", handler=ask_purge),
    PageRoute(method="POST", path=f"{_BASE}/purge", handler=purge),
)
