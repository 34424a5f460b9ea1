"""Receiving messages of a queue by hand. The ack tokens are in the page, so that any replica serves its next call."""

from __future__ import annotations

import math
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from babelgate.console import bodies
from babelgate.console.answers import PageAnswer
from babelgate.console.pages.messages import TEXT
from babelgate.console.pages.queue import path_of, shared
from babelgate.console.routes import PageRoute
from babelgate.console.visits import Visit
from babelgate.errors import InvalidParameter
from babelgate.gateway.authorization import Right
from babelgate.gateway.model import Message
from babelgate.gateway.redacting import as_shown
from babelgate.http.consume import settlement_of
from babelgate.http.publish_parameters import given
from babelgate.http.schemas import ReceiveRequest, SettleRequest, from_body, from_query
from babelgate.runtime import turns

_WAIT_SECONDS = 1.0
"""How long a receive waits for a message: a broker that is asked once may have one, and deliver it a little later."""
_MAX_MESSAGES = 10
"""Of one call: what a person can look at while the leases run."""
_DONE = {"ack": "Acked", "nack": "Returned to the queue", "reject": "Dead-lettered"}


class Leased(NamedTuple):
    """A message in the page. ``download``: the address of its bytes, where the page shows less."""

    message: Message
    seconds_left: float
    row: bodies.Row
    pretty: bodies.Shown | None
    raw: bodies.Shown
    download: str


async def form(visit: Visit) -> PageAnswer:
    """The form."""
    visit.gateway.access(visit.caller, Right.LISTEN, visit.parameters["queue"])
    return _page(visit, None)


async def receive(visit: Visit) -> PageAnswer:
    """Lease messages, and show them."""
    query = {name: visit.form[name] for name in ("max_messages", "lease_seconds") if visit.form.get(name)}
    parameters = from_query(urlencode(query).encode(), ReceiveRequest)
    if parameters.max_messages > _MAX_MESSAGES:
        raise InvalidParameter(name="max_messages", reason=f"must be 1 to {_MAX_MESSAGES} here")
    messages = await visit.gateway.receive(
        visit.caller,
        visit.parameters["queue"],
        max_messages=parameters.max_messages,
        wait_seconds=_WAIT_SECONDS,
        lease_seconds=given(parameters.lease_seconds),
        trace=visit.exchange.trace,
    )
    return _page(visit, await turns.mapped(lambda each: _leased(visit, each), messages, lambda each: len(each.body)))


async def settle(visit: Visit) -> PageAnswer:
    """Ack, nack, reject or extend one message. Raises the error of its lease."""
    queue, action = visit.parameters["queue"], visit.form.get("action", "")
    settlement = settlement_of(from_body(msgspec.json.encode(_request(visit, action)), SettleRequest))
    (result,) = await visit.gateway.settle(visit.caller, queue, settlement, visit.exchange.trace)
    if result.error is not None:
        raise result.error
    if result.lease_expires_at is not None:
        left = _seconds_left(visit, result.lease_expires_at)
        return visit.page("lease_clock.html", "lease_clock.html", seconds_left=left)
    done = "Dead-lettered: this was its last attempt" if result.dead_lettered else _DONE[action]
    done = f"{done}. Message {visit.form.get('id') or 'without an id'}."
    if visit.is_fragment:
        return visit.page("lease_done.html", "lease_done.html", done=done)
    return visit.see_other(f"{path_of(queue)}/receive", done)


def _page(visit: Visit, leases: list[Leased] | None) -> PageAnswer:
    queue = visit.parameters["queue"]
    route = visit.gateway.access(visit.caller, Right.LISTEN, queue).route
    return visit.page(
        "receive.html",
        "leases.html",
        **shared(visit, "receive"),
        leases=leases,
        policy=route.policy,
        capabilities=route.capabilities,
        most=_MAX_MESSAGES,
    )


def _leased(visit: Visit, message: Message) -> Leased:
    route = visit.gateway.access(visit.caller, Right.LISTEN, visit.parameters["queue"]).route
    shown = as_shown(message.body, route)
    raw, pretty = bodies.raw(shown), bodies.pretty(shown)
    is_cut = raw.left_out > 0 or (pretty is not None and pretty.left_out > 0)
    return Leased(
        message,
        _seconds_left(visit, message.lease_expires_at),
        bodies.row(message.body, visit.gateway.limits),
        pretty,
        raw,
        bodies.data_url(TEXT, shown) if is_cut else "",
    )


def _seconds_left(visit: Visit, ends_at: int) -> float:
    """A browser's clock may differ from ours: it counts from now."""
    return max(ends_at - visit.gateway.clock(), 0) / 1_000


def _request(visit: Visit, action: str) -> dict[str, Any]:
    """The settle request of the form. Raises InvalidParameter."""
    form = visit.form
    tokens = {"ack_tokens": [form.get("ack_token", "")]}
    failure = {"error": {"message": form["error"]}} if form.get("error") else {}
    if action == "ack":
        return {"acks": tokens["ack_tokens"]}
    if action == "nack":
        return {"nacks": [{**tokens, **failure, **_number(visit, "delay_seconds")}]}
    if action == "reject":
        return {"rejects": [{**tokens, **failure}]}
    if action == "extend":
        return {"extends": [{**tokens, **_number(visit, "lease_seconds")}]}
    raise InvalidParameter(name="action", reason="must be ack, nack, reject or extend")


def _number(visit: Visit, name: str) -> dict[str, float]:
    text = visit.form.get(name, "").strip()
    if not text:
        return {}
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise InvalidParameter(name=name, reason="must be a number of seconds")
    return {name: seconds}


ROUTES = (
    PageRoute(method="GET", path="queues/{queue}/receive", handler=form),
    PageRoute(method="POST", path="queues/{queue}/receive", handler=receive),
    PageRoute(method="POST", path="queues/{queue}/settle", handler=settle),
)
