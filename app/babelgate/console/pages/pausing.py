"""Pausing a queue and resuming it."""

from __future__ import annotations

from babelgate.console.answers import PageAnswer
from babelgate.console.pages.queue import path_of
from babelgate.console.routes import PageRoute
from babelgate.console.visits import Visit
from babelgate.errors import InvalidParameter
from babelgate.gateway.authorization import Right
from babelgate.gateway.pauses import MAX_REASON, Publishes

_PUBLISHES: dict[str, Publishes] = {"accept": "accept", "refuse": "refuse"}


async def ask(visit: Visit) -> PageAnswer:
    """What a pause does, and the form for it; for a paused queue with what its pause has."""
    queue = visit.parameters["queue"]
    visit.gateway.access(visit.caller, Right.MANAGE, queue)
    back = f"{visit.root}{path_of(queue)}"
    return visit.page(
        "pause.html", queue=queue, back=back, pause=visit.gateway.pauses.get(queue), max_reason=MAX_REASON
    )


async def pause(visit: Visit) -> PageAnswer:
    """Pause the queue, and say which processes know it."""
    queue = visit.parameters["queue"]
    publishes = _PUBLISHES.get(visit.form.get("publishes", "accept"))
    if publishes is None:
        raise InvalidParameter(name="publishes", reason="must be accept or refuse")
    reason = visit.form.get("reason", "").strip() or None
    outcome = await visit.gateway.pauses.pause(visit.caller, queue, publishes, reason)
    return visit.see_other(path_of(queue), f"Paused. {outcome.detail}")


async def resume(visit: Visit) -> PageAnswer:
    """Resume the queue, and say which processes know it."""
    queue = visit.parameters["queue"]
    outcome = await visit.gateway.pauses.resume(visit.caller, queue)
    return visit.see_other(path_of(queue), f"Resumed. {outcome.detail}")


ROUTES = (
    PageRoute(method="GET", path="queues/{queue}/pause", handler=ask),
    PageRoute(method="POST", path="queues/{queue}/pause", handler=pause),
    PageRoute(method="POST", path="queues/{queue}/resume", handler=resume),
)
