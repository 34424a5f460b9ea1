"""What the frame does around the handler of a page: forms, read-only, errors, actions in the log."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlencode

import pytest

from babelgate.clock import now_ms
from babelgate.console.frame import ConsoleFrame
from babelgate.console.routes import PageRoute
from babelgate.console.sessions import SESSION_COOKIE, Sessions
from babelgate.console.site import Console
from babelgate.errors import Overloaded, QueueNotFound
from babelgate.gateway.admission import Admission, Bounds
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from tests.harness.asgi import Call, part
from tests.harness.memory import CAPABLE
from tests.harness.setting import Setting
from tests.harness.world import KEYS

FORM = "application/x-www-form-urlencoded"
TEXT = "<b>'\"&\ud800é"


class Site:
    """A console with one page, ``queues/{queue}/do``, whose handler is the test's."""

    def __init__(self, handler, *, writes=True, form_bytes=1_000, **options):
        self.visits = []
        self._handler = handler
        self.gateway = Setting("emails", CAPABLE).process.gateway
        self.sessions = Sessions(KEYS, now_ms)
        auth = Auth(hosts=frozenset({"localhost"}))
        routes = [
            PageRoute(
                method=method, path="queues/{queue}/do", handler=self._handle, writes=writes, form_bytes=form_bytes
            )
            for method in ("GET", "POST")
        ]
        console = Console(ConsoleFrame(self.gateway, auth, RequestLimits(), self.sessions, **options), routes)
        self.ended: list[tuple[str, int, str]] = []
        self.api = create_api(
            self.gateway,
            auth=auth,
            limits=RequestLimits(),
            ended=[lambda exchange, took: self.ended.append((exchange.route, exchange.status, exchange.caller.name))],
            console=console.serve,
        )

    async def _handle(self, visit):
        self.visits.append(visit)
        return await self._handler(visit)

    async def get(self, path="/console/queues/a/do", **headers):
        return await Call("GET", path, **headers).run(self.api)

    async def post(self, path="/console/queues/a/do", **form):
        session = self.sessions.begin()
        body = urlencode({"csrf": session.csrf, **form}).encode()
        headers = {"content_type": FORM, "content_length": str(len(body))}
        headers["cookie"] = f"{SESSION_COOKIE}={self.sessions.seal(session)}"
        return await Call("POST", path, [part(body, more=False)], **headers).run(self.api)


async def done(visit):
    return visit.see_other("queues", "Done.")


async def shown(visit):
    return visit.page(
        "error.html", title=TEXT, detail=TEXT, code=TEXT, retryable=True, phrase="", request_id="", problems=[]
    )


async def test_a_handler_gets_parameters_and_form():
    site = Site(done)
    answer = await site.post("/console/queues/a%2Fb%C3%A9/do?x=1", text="é&=\r\n", empty="")
    (visit,) = site.visits
    assert (visit.parameters, visit.query, visit.root) == ({"queue": "a/bé"}, {"x": "1"}, "../../")
    assert {**visit.form, "csrf": ""} == {"text": "é&=\r\n", "empty": "", "csrf": ""}
    assert (answer.status, answer.headers["location"]) == (303, "./../../queues")


async def test_read_only_refuses_what_writes():
    site = Site(done, read_only=True)
    answer = await site.post()
    assert (answer.status, site.visits) == (403, [])
    assert b"read-only" in answer.body
    assert (await Site(done, read_only=True, writes=False).post()).status == 303
    assert (await Site(shown, read_only=True).get()).status == 200


async def test_each_value_is_escaped():
    answer = await Site(shown).get()
    assert b"&lt;b&gt;&#39;&#34;&amp;?\xc3\xa9" in answer.body and b"<b>" not in answer.body


@pytest.mark.parametrize(
    ("error", "status", "words", "fields"),
    [
        (QueueNotFound(queue="<i>"), 404, b"No route is configured for the queue &lt;i&gt;.", {}),
        (Overloaded(reason="x"), 429, b"Try again", {"retry-after": "1"}),
        (RuntimeError("secret"), 500, b"An unexpected error occurred.", {}),
    ],
    ids=["refused", "overloaded", "unexpected"],
)
async def test_an_error_is_a_page_in_words(error, status, words, fields):
    async def fails(visit):
        raise error

    for answer in (await Site(fails).get(), await Site(fails).post()):
        assert (answer.status, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
        assert words in answer.body and b"secret" not in answer.body
        assert fields.items() <= answer.headers.items()
    fragment = await Site(fails).get(hx_request="true")
    assert fragment.status == status and b"<html" not in fragment.body


async def test_a_form_that_is_too_large_is_refused_and_a_larger_one_has_its_limit():
    assert (await Site(done).post(text="x" * 1_000)).status == 413
    assert (await Site(done, form_bytes=400_000).post(text="é" * 50_000)).status == 303


async def test_an_escape_that_is_no_utf_8_is_refused():
    answer = await Site(done).post("/console/queues/%FF/do")
    assert answer.status == 400 and b"it is not UTF-8" in answer.body


async def test_a_notice_is_shown_once():
    site = Site(shown)
    sealed = site.sessions.seal_notice("<Done>")
    answer = await site.get(cookie=f"babelgate_notice={sealed}")
    assert b"&lt;Done&gt;" in answer.body
    assert b"Done" not in (await site.get()).body
    session = await site.get(cookie=f"babelgate_notice={site.sessions.seal(site.sessions.begin())}")
    assert session.status == 200 and not re.search(rb'class="notice" role="status"', session.body)


async def test_observers_see_the_template_of_the_path():
    site = Site(shown)
    await site.get("/console/queues/some/do")
    assert site.ended == [("/console/queues/{queue}/do", 200, "anyone")]


async def test_a_large_form_is_refused_in_overload():
    site = Site(done, form_bytes=400_000)
    site.gateway.admission = Admission(Bounds(max_other_bytes_in_flight=100_000))
    with site.gateway.admission.other("", 90_000):
        answer = await site.post(text="x" * 80_000)
        assert (answer.status, answer.headers["retry-after"], site.visits) == (429, "1", [])
        assert b"Overloaded" in answer.body
        assert (await site.post(text="x" * 8_000)).status == 303
    assert (await site.post(text="x" * 80_000)).status == 303


async def test_a_drain_does_not_end_a_page():
    site = Site(shown)
    await site.gateway.drain()
    assert (await site.get()).status == 200


async def test_a_page_whose_browser_has_gone_is_not_made():
    begun, ended = asyncio.Event(), []

    async def waits(visit):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    site = Site(waits)
    call = Call("GET", "/console/queues/a/do")
    serving = asyncio.create_task(call.run(site.api))
    await begun.wait()
    call.hang_up()
    await serving
    assert (ended, call.status) == ([True], 0)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("", "Overview"),
        ("queues/a/dead-letters", "Dead letters"),
        ("queues/a/dead-letters/list", "Dead letters"),
        ("queues/a/publish", "Queues"),
        ("queues/dead-letters", "Queues"),
    ],
)
def test_the_menu_says_where_a_page_belongs(free, path, place):
    with free.client() as client:
        page = client.get(f"console/{path}").raise_for_status().text
    menu = page[: page.index("</nav>")]
    assert re.findall(r'aria-current="page">([^<]*)<', menu) == [place]
