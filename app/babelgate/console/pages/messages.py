"""One message that is ready on a queue, and its download."""

from __future__ import annotations

from babelgate.brokers.binding import Peeked
from babelgate.brokers.projection import NativeWrite
from babelgate.console import bodies
from babelgate.console.answers import PageAnswer
from babelgate.console.pages.queue import SHOWN_MESSAGES, shared
from babelgate.console.routes import PageRoute
from babelgate.console.snippets import Snippet, curl, programs
from babelgate.console.visits import Visit
from babelgate.errors import BrokerError, EnvelopeError, EnvelopeSyntaxError, UnsupportedByBroker
from babelgate.gateway.model import Projection
from babelgate.http.problems import NotFound, detail_of
from babelgate.runtime import turns

TEXT = b"text/plain; charset=utf-8"


async def show(visit: Visit) -> PageAnswer:
    """The message: its envelope beside its bytes, its headers, its native form, and code that publishes it."""
    queue = visit.parameters["queue"]
    message = await peeked(visit)
    body = message.body
    row = await turns.run(bodies.row, body, visit.gateway.limits, size=len(body), background=True)
    projection, refused = await _projected(visit, queue, body)
    return visit.page(
        "message.html",
        **shared(visit, "queue"),
        row=row,
        pretty=await turns.run(bodies.pretty, body, size=len(body), background=True),
        raw=bodies.raw(body),
        headers=message.headers,
        projection=projection,
        writes=[] if projection is None else [shown_write(each) for each in projection.writes],
        refused=refused,
        snippets=_snippets(visit, queue, body, row),
    )


async def download(visit: Visit) -> PageAnswer:
    """The whole body."""
    message = await peeked(visit)
    name = f"{visit.parameters['queue']}-{visit.parameters['key'][:8]}.txt"
    headers = [
        (b"content-disposition", f'attachment; filename="{name}"'.encode("ascii", "replace")),
        (b"cache-control", b"no-store"),
    ]
    return PageAnswer(200, message.body, TEXT, headers)


async def peeked(visit: Visit, key: str | None = None) -> Peeked:
    """The message with the key in the address. Raises NotFound once it is no longer among the first messages."""
    key = visit.parameters["key"] if key is None else key
    for each in await visit.gateway.peek(visit.caller, visit.parameters["queue"], SHOWN_MESSAGES[-1]):
        if bodies.key_of(each.body) == key:
            return each
    advice = f"The message is no longer among the first {SHOWN_MESSAGES[-1]} that are ready on the queue."
    raise NotFound(visit.exchange.path, advice)


def shown_write(write: NativeWrite) -> tuple[NativeWrite, bodies.Shown | None]:
    """A native write, and its body as text."""
    return write, None if write.body is None else bodies.raw(write.body)


def address_of(visit: Visit) -> str:
    """The URL of the gateway, as the browser sees it."""
    scheme = visit.exchange.scope.get("scheme", "http")
    host = visit.exchange.headers.get(b"host", b"").decode("latin-1")
    return f"{scheme}://{host}{visit.frame.prefix}"


async def _projected(visit: Visit, queue: str, body: bytes) -> tuple[Projection | None, str]:
    """What a publish of ``body`` would write, or, without the right to publish, its canonical form; or why neither is
    possible."""
    gateway = visit.gateway
    try:
        if visit.may("send", queue):
            return await gateway.validate(visit.caller, queue, body), ""
        return await gateway.inspect(visit.caller, queue, body), ""
    except (EnvelopeError, EnvelopeSyntaxError, UnsupportedByBroker, BrokerError) as error:
        return None, detail_of(error)


def _snippets(visit: Visit, queue: str, body: bytes, row: bodies.Row) -> list[Snippet]:
    """Code that publishes the message again, with a new id. A large one is only sent from a file."""
    if row.envelope is None:
        return []
    url, has_token = address_of(visit), visit.frame.has_sign_in
    if len(body) > bodies.SHOWN_CHARACTERS:
        return [Snippet("curl", curl(url, queue, "@message.json", has_token=has_token))]
    draft = bodies.draft_of(body, row.envelope, traced=True)
    command = curl(url, queue, bodies.written(draft), has_token=has_token)
    return [Snippet("curl", command), *programs(url, queue, draft)]


ROUTES = (
    PageRoute(method="GET", path="queues/{queue}/messages/{key}", handler=show),
    PageRoute(method="GET", path="queues/{queue}/messages/{key}/body", handler=download),
)
