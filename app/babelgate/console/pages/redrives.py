"""Many dead letters at once: a dry run, then a redrive in the background that can be watched, stopped and resumed."""

from __future__ import annotations

from collections.abc import Mapping

from babelgate.console.answers import PageAnswer
from babelgate.console.conditions import count_of, fields_of, letter_filter
from babelgate.console.pages.dead_letters import letters_path
from babelgate.console.routes import PageRoute
from babelgate.console.visits import Visit, segment
from babelgate.gateway.dead_letters import MAX_SCANNED
from babelgate.gateway.model import EVERY_LETTER
from babelgate.gateway.redrive import RedriveOrder

_COUNTED = MAX_SCANNED
"""Letters that a dry run counts."""
_SELECTED = "letter."
"""Begins the name of the field of a selected letter; its id follows."""
_MAX_SELECTED = 900
"""Fewer than the fields of a form."""


async def plan(visit: Visit) -> PageAnswer:
    """What a redrive of the letters that match would do, and the form for it."""
    fields = fields_of(letter_filter(visit.query))
    return await _plan(visit, RedriveOrder(letter_filter(visit.query), limit=_COUNTED, dry_run=True), fields)


async def selected(visit: Visit) -> PageAnswer:
    """What is about to happen to the selected letters, and the form for it."""
    queue, ids = visit.parameters["queue"], _ids(visit.form)
    if not ids:
        return visit.see_other(f"{letters_path(queue)}/list", "Select at least one dead letter.")
    fields = {_SELECTED + letter_id: "1" for letter_id in sorted(ids)}
    if visit.form.get("do") == "delete":
        base = visit.root + letters_path(queue)
        return visit.page("letter_delete.html", queue=queue, base=base, fields=fields)
    return await _plan(visit, RedriveOrder(ids=ids, limit=_COUNTED, dry_run=True), fields)


async def delete(visit: Visit) -> PageAnswer:
    """Remove the selected letters."""
    queue, ids = visit.parameters["queue"], _ids(visit.form)
    results = await visit.gateway.letters.remove(visit.caller, queue, sorted(ids))
    failed = [each.error for each in results if each.error is not None]
    notice = f"Deleted: {len(results) - len(failed):,} dead letters."
    if failed:
        notice += f" {len(failed):,} were not deleted: {failed[0].detail}"
    return visit.see_other(f"{letters_path(queue)}/list", notice)


async def start(visit: Visit) -> PageAnswer:
    """Begin a redrive in the background."""
    queue, ids, form = visit.parameters["queue"], _ids(visit.form), visit.form
    order = RedriveOrder(
        EVERY_LETTER if ids else letter_filter(form),
        ids or None,
        count_of(form, "limit"),
        form.get("force") == "1",
        count_of(form, "per_second"),
    )
    job = await visit.gateway.letters.start_job(visit.caller, queue, order, target(form), visit.exchange.trace)
    return visit.see_other(_job_path(queue, job.id), "The redrive has begun.")


async def show(visit: Visit) -> PageAnswer:
    """A redrive in the background, and how far it is."""
    queue = visit.parameters["queue"]
    job = await visit.gateway.letters.job(visit.caller, queue, visit.parameters["job"])
    base = visit.root + letters_path(queue)
    return visit.page("redrive_job.html", "redrive_job_live.html", queue=queue, base=base, job=job)


async def cancel(visit: Visit) -> PageAnswer:
    """Stop a redrive at its next page."""
    queue, job = visit.parameters["queue"], visit.parameters["job"]
    await visit.gateway.letters.cancel_job(visit.caller, queue, job)
    return visit.see_other(_job_path(queue, job), "The redrive stops. What was sent stays sent.")


async def resume(visit: Visit) -> PageAnswer:
    """Go on with a redrive that has stopped."""
    queue, job = visit.parameters["queue"], visit.parameters["job"]
    await visit.gateway.letters.resume_job(visit.caller, queue, job, visit.exchange.trace)
    return visit.see_other(_job_path(queue, job), "The redrive goes on.")


def target(form: Mapping[str, str]) -> str | None:
    """The queue that a form names; None: the queue that the letters are of."""
    return form.get("to_queue", "").strip() or None


async def _plan(visit: Visit, order: RedriveOrder, fields: Mapping[str, str]) -> PageAnswer:
    queue = visit.parameters["queue"]
    result = await visit.gateway.letters.redrive(visit.caller, queue, order, None, visit.exchange.trace)
    return visit.page(
        "redrive_plan.html",
        queue=queue,
        base=visit.root + letters_path(queue),
        fields=fields,
        filtered={} if order.ids else fields,
        result=result,
        sendable=result.matched - result.failed,
        is_all=result.matched < _COUNTED,
    )


def _ids(form: Mapping[str, str]) -> frozenset[str]:
    names = [name.removeprefix(_SELECTED) for name in form if name.startswith(_SELECTED)]
    return frozenset(names[:_MAX_SELECTED])


def _job_path(queue: str, job: str) -> str:
    return f"{letters_path(queue)}/redrives/{segment(job)}"


_BASE = "queues/{queue}/dead-letters"

ROUTES = (
    PageRoute(method="GET", path=f"{_BASE}/redrive", handler=plan),
    PageRoute(method="POST", path=f"{_BASE}/redrive", handler=start),
    PageRoute(method="POST", path=f"{_BASE}/selected", handler=selected, writes=False),
    PageRoute(method="POST", path=f"{_BASE}/delete", handler=delete),
    PageRoute(method="GET", path=_BASE + "/redrives/{job}", handler=show),
    PageRoute(method="POST", path=_BASE + "/redrives/{job}/cancel", handler=cancel),
    PageRoute(method="POST", path=_BASE + "/redrives/{job}/resume", handler=resume),
)
