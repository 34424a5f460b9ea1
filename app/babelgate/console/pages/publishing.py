"""Publishing a message to a queue: the form, its check as one types, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from babelgate.brokers.capabilities import BrokerCapabilities
from babelgate.console import bodies
from babelgate.console.abilities import refused_options
from babelgate.console.answers import PageAnswer
from babelgate.console.conditions import time_of
from babelgate.console.faults import faults_of
from babelgate.console.pages.messages import peeked, shown_write
from babelgate.console.pages.queue import path_of, shared
from babelgate.console.places import lines_of
from babelgate.console.routes import PageRoute
from babelgate.console.visits import Visit
from babelgate.envelope.options import IDEMPOTENCY_KEY
from babelgate.errors import (
    BabelgateError,
    InvalidIdempotencyKey,
    Overloaded,
    Problem,
    StateUnavailable,
    UnsupportedByBroker,
    shortened,
)
from babelgate.gateway.authorization import Right
from babelgate.gateway.model import Replay
from babelgate.http.broker_properties import from_text
from babelgate.http.problems import detail_of, status_of
from babelgate.http.publish_parameters import OPTIONS, PublishParameters, given, options_of
from babelgate.http.schemas import from_query
from babelgate.observe.journal.search import Query
from babelgate.runtime import turns

FORM_BYTES = 4_194_304
"""A message of 1 MiB, the usual limit, each byte of which is escaped, with the other fields."""
_OPTIONS = ("delay_seconds", "ordering_key", *OPTIONS)
"""Of the query, as the API takes them."""
_FIELDS = ("body", *_OPTIONS, "idempotency_key", "broker_properties")
_TEMPLATES_FROM = 50
"""How many of the messages that are ready are looked at for jobs."""
_MAX_TEMPLATES = 10
_MAX_EXAMPLES = 200
"""Jobs with schemas that the field for an example suggests; any job can be typed."""
_JOURNAL_SECONDS = 1.0
"""How long the form waits for the journal: it is useful without."""
_SAMPLE = """{
  "job": "urn:babel:example:done",
  "data": {}
}"""


class _Placed(NamedTuple):
    """A problem of a message. ``line``: its line in the text of the form, from 1; None if it is about no part of it."""

    pointer: str
    detail: str
    line: int | None


async def form(visit: Visit) -> PageAnswer:
    """The form, empty or filled in: like the message whose key or job is in the address, or by the schema of a job."""
    queue = visit.parameters["queue"]
    visit.gateway.access(visit.caller, Right.SEND, queue)
    templates = await _templates(visit, queue)
    body = _SAMPLE
    if key := visit.query.get("message"):
        body = await turns.run(_again, (await peeked(visit, key)).body, visit, size=0)
    elif (job := visit.query.get("job")) is not None and job in templates:
        body = templates[job]
    elif job := visit.query.get("example"):
        draft = await turns.run(visit.gateway.schema_checks.schemas.example, job, size=turns.LARGE_BYTES + 1)
        if draft is None:
            said = f"There is no schema of the job {shortened(job)!r} of which an example can be made."
            return await _page(visit, templates, {"body": body, "example": job}, said=said)
        body = bodies.editable(draft)
    return await _page(visit, templates, {"body": body})


async def check(visit: Visit) -> PageAnswer:
    """What a publish of the form would write, or why it would be refused."""
    queue = visit.parameters["queue"]
    capabilities = visit.gateway.access(visit.caller, Right.SEND, queue).route.capabilities
    projection, pretty, error = None, None, None
    sent = visit.form.get("body", "")
    try:
        _key(visit.form)
        projection = await visit.gateway.validate(visit.caller, queue, sent.encode(), **_given(visit))
        body = projection.body
        pretty = await turns.run(bodies.pretty, body, size=len(body), background=True)
    except BabelgateError as refused:
        error = refused
    return visit.page(
        "publish_check.html",
        "publish_check.html",
        projection=projection,
        pretty=pretty,
        writes=[] if projection is None else [shown_write(each) for each in projection.writes],
        **await _refusal(error, sent, _offered(capabilities)),
        warnings=[] if projection is None else await _placed(sent, projection.warnings),
    )


async def publish(visit: Visit) -> PageAnswer:
    """Publish the message of the form. A refused one stays in the form."""
    queue = visit.parameters["queue"]
    body = visit.form.get("body", "").encode()
    try:
        receipt = await visit.gateway.publish(
            visit.caller,
            queue,
            body,
            trace=visit.exchange.trace,
            idempotency_key=_key(visit.form),
            **_given(visit),
        )
    except BabelgateError as error:
        refusal = await _refusal(error, visit.form.get("body", ""))
        answer = await _page(visit, {}, visit.form, **refusal)
        return answer._replace(status=status_of(error))
    if isinstance(receipt, Replay):
        done = f"Nothing was published: this idempotency key belongs to the message {receipt.id}."
    else:
        done = f"Published the message {receipt.id}, of the trace {receipt.trace_id}."
    return visit.see_other(f"{path_of(queue)}/publish", done)


async def _page(
    visit: Visit, templates: Mapping[str, str], fields: Mapping[str, str], said: str = "", **refusal: Any
) -> PageAnswer:
    """``said``: a sentence about the example that was asked for."""
    queue = visit.parameters["queue"]
    capabilities = visit.gateway.access(visit.caller, Right.SEND, queue).route.capabilities
    return visit.page(
        "publish.html",
        **shared(visit, "publish"),
        templates=list(templates),
        fields={name: fields.get(name, "") for name in _FIELDS},
        jobs=[each.job for each in islice(visit.gateway.schema_checks.schemas, _MAX_EXAMPLES)],
        example=fields.get("example", ""),
        said=said,
        capabilities=capabilities,
        refused_options=refused_options(capabilities),
        **(refusal or await _refusal(None)),
    )


def _offered(capabilities: BrokerCapabilities) -> list[str]:
    """The options that the form has for a queue on this broker."""
    has = {
        "delay_seconds": capabilities.max_delay_seconds != 0,
        "deliver_at": capabilities.max_delay_seconds != 0,
        "ttl_seconds": capabilities.headers,
        "priority": capabilities.priorities,
        "broker_properties": bool(capabilities.broker_properties),
    }
    return [name for name in _FIELDS if name != "body" and has.get(name, True)]


async def _placed(body: str, problems: Sequence[Problem]) -> list[_Placed]:
    """``problems`` with their lines in ``body``."""
    lines = await turns.run(lines_of, body, [each.pointer for each in problems], size=len(body), background=True)
    return [_Placed(each.pointer, each.detail, lines.get(each.pointer)) for each in problems]


async def _refusal(error: BabelgateError | None, body: str = "", names: Iterable[str] = _FIELDS) -> dict[str, Any]:
    """The error in words, with its places in ``body``, and as the fault of the field in ``names`` that it is about."""
    faults = dict.fromkeys(names, "") | {name: text for name, text in faults_of(error).items() if name in names}
    if error is None:
        return {"detail": "", "problems": [], "faults": faults}
    problems = await _placed(body, error.facts.get("problems", []))
    return {"detail": detail_of(error), "problems": problems, "faults": faults}


def _given(visit: Visit) -> dict[str, Any]:
    """The options in the form, as the API reads them in a query and in a header; an empty field is none. Raises
    InvalidParameter, EnvelopeError."""
    form = visit.form
    query = {name: form[name] for name in _OPTIONS if form.get(name)}
    if (at := time_of(form, "deliver_at")) is not None:
        query["deliver_at"] = str(at)
    parameters = from_query(urlencode(query).encode(), PublishParameters)
    properties = form.get("broker_properties", "").strip()
    return {
        "delay_seconds": given(parameters.delay_seconds),
        "ordering_key": given(parameters.ordering_key),
        "broker_properties": from_text(properties.encode()) if properties else None,
        "options": options_of(parameters),
    }


def _key(form: Mapping[str, str]) -> str | None:
    """Raises InvalidIdempotencyKey."""
    key = form.get("idempotency_key", "")
    if key and not IDEMPOTENCY_KEY.fullmatch(key):
        raise InvalidIdempotencyKey(reason="must be 1 to 255 printable ASCII characters")
    return key or None


async def _templates(visit: Visit, queue: str) -> dict[str, str]:
    """A draft for each job of the messages that are ready or were published lately; none without the right to see
    them. Those of the journal, which keeps no bodies, have no data."""
    if not visit.may("observe", queue):
        return {}
    templates = await _published(visit, queue)
    try:
        found = await visit.gateway.peek(visit.caller, queue, _TEMPLATES_FROM)
    except UnsupportedByBroker:
        found = []
    seen = set()
    rows = await bodies.rows(list(found), visit.gateway.limits)
    for message, row in zip(found, rows, strict=True):
        envelope = row.envelope
        if envelope is not None and envelope.job not in seen and row.size <= bodies.SHOWN_CHARACTERS:
            seen.add(envelope.job)
            templates[envelope.job] = bodies.written(bodies.draft_of(message.body, envelope, traced=False))
    return dict(sorted(templates.items())[:_MAX_TEMPLATES])


async def _published(visit: Visit, queue: str) -> dict[str, str]:
    """A draft without data for each job that the journal knows; none if it does not answer soon."""
    if not visit.gateway.history.enabled:
        return {}
    try:
        async with asyncio.timeout(_JOURNAL_SECONDS):
            query = Query(queue=queue, event="accepted")
            page = await visit.gateway.history.events(visit.caller, query, _TEMPLATES_FROM)
    except (TimeoutError, StateUnavailable, Overloaded):
        return {}
    jobs = {record.job for record in page.events if record.job is not None}
    return {job: bodies.written(bodies.Draft(job, msgspec.Raw(b"{}"))) for job in jobs}


def _again(body: bytes, visit: Visit) -> str:
    """A draft like the envelope in ``body``; the body itself if it is none."""
    envelope = bodies.row(body, visit.gateway.limits).envelope
    if envelope is None:
        return body.decode("utf-8", "replace")
    return bodies.written(bodies.draft_of(body, envelope, traced=True))


ROUTES = (
    PageRoute(method="GET", path="queues/{queue}/publish", handler=form),
    PageRoute(method="POST", path="queues/{queue}/publish", handler=publish, form_bytes=FORM_BYTES),
    PageRoute(method="POST", path="queues/{queue}/publish/check", handler=check, writes=False, form_bytes=FORM_BYTES),
)
