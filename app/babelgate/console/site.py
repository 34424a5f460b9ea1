"""Serves the console: who may see a page, what a browser may send, and what becomes of errors."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from urllib.parse import quote

from babelgate.console.answers import HTML, PageAnswer
from babelgate.console.forms import fields
from babelgate.console.frame import ConsoleFrame
from babelgate.console.pages import ROUTES
from babelgate.console.routes import PageRoute, RouteTable
from babelgate.console.sessions import SESSION_COOKIE
from babelgate.console.visits import ROOT, Visit
from babelgate.errors import BabelgateError, Forbidden, InternalError, InvalidParameter, Unauthenticated
from babelgate.gateway.authorization import ANYONE
from babelgate.http.audited import AuditedExchange
from babelgate.http.body import media_type, read
from babelgate.http.exchange import ClientGone, Exchange
from babelgate.http.heads import check_query
from babelgate.http.problems import MethodNotAllowed, NotFound, RawHeaders, UnsupportedMediaType
from babelgate.observe.logs import get_logger
from babelgate.runtime import turns

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS: RawHeaders = [
    (b"content-security-policy", POLICY.encode()),
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
    # With no-referrer, browsers would send `Origin: null` with our own forms.
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
]
_ALWAYS: RawHeaders = [(b"x-content-type-options", b"nosniff"), (b"cross-origin-resource-policy", b"same-origin")]
_FORM = b"application/x-www-form-urlencoded"
CSRF_FIELD = "csrf"
_CSRF_HEADER = b"x-csrf-token"
SIGN_IN = "sign-in"

log = get_logger(__name__)


class Console:
    """The pages of one process."""

    def __init__(self, frame: ConsoleFrame, routes: Sequence[PageRoute] = ROUTES) -> None:
        self._frame = frame
        self._auth = frame.auth
        self._routes = RouteTable(routes)
        frame.menu = self._routes.menu

    async def serve(self, exchange: Exchange) -> None:
        """Serve a request for ``/console`` or a path below it. Raises ClientGone."""
        visit = Visit(self._frame, exchange)
        try:
            answer = await self._answer(visit)
        except ClientGone:
            raise
        except BabelgateError as error:
            exchange.error = error.problem_code
            answer = visit.failure(error)
            error.without_frames()
        except Exception:
            log.exception("page failed", **exchange.ids())
            failure = InternalError()
            exchange.error = failure.problem_code
            answer = visit.failure(failure)
        headers = [*answer.headers, *_ALWAYS]
        if answer.content_type == HTML:
            own = {name for name, _ in answer.headers}
            headers += [header for header in _HEADERS if header[0] not in own]
        cookies = [*answer.cookies, *([visit.session_cookie()] if visit.is_new else [])]
        headers += [(b"set-cookie", cookie) for cookie in cookies]
        await exchange.answer(answer.status, answer.body, answer.content_type, headers)

    async def _answer(self, visit: Visit) -> PageAnswer:
        exchange = visit.exchange
        method = "GET" if exchange.scope["method"] == "HEAD" else exchange.scope["method"]
        check_query(exchange.scope["query_string"])
        if visit.path.startswith("assets/") and method == "GET":
            exchange.route = f"{ROOT}/assets/{{name}}"
            await self._read(exchange, 0)
            name = visit.path.removeprefix("assets/")
            return self._frame.assets.answer(name, exchange.scope["query_string"], exchange.headers)
        self._auth.check_host(exchange.headers)
        if method == "GET" and _comes_from_elsewhere(exchange):
            return visit.page("continue.html")
        self._auth.check_page(exchange.headers)
        if exchange.path == ROOT:
            return PageAnswer(307, b"", HTML, [(b"location", b"console/")])
        self._recognize(visit)
        found = self._routes.find(visit.path)
        if found is None:
            raise NotFound(exchange.path, "The navigation leads to all pages.")
        methods, visit.parameters = found
        route = methods.get(method)
        if route is None:
            raise MethodNotAllowed(allow=", ".join(methods))
        exchange.route = f"{ROOT}/{route.path}"
        if route.needs_user and not visit.has_access:
            if method == "POST" or visit.is_fragment:
                raise Unauthenticated
            here = quote(_here(exchange, visit), safe="")
            return visit.see_other(f"{SIGN_IN}?to={here}" if here else SIGN_IN)
        body = await self._read(exchange, route.form_bytes if method == "POST" else 0)
        if method == "GET":
            return await exchange.unless_gone(route.handler(visit))
        visit.form = await _form(exchange, body)
        return await self._act(visit, route)

    def _recognize(self, visit: Visit) -> None:
        """Find the session and the user of a visit; a browser without a session gets one."""
        session = self._frame.sessions.open(visit.cookies.get(SESSION_COOKIE))
        if self._auth.callers is None:
            visit.caller = ANYONE
        elif session is not None and session.credential:
            caller = self._auth.user(session.credential, session.ticket)
            if caller is None:
                # The token is no longer configured.
                session = None
            else:
                visit.caller = caller
        visit.session = session
        visit.exchange.caller = visit.caller
        if session is None and visit.exchange.scope["method"] != "POST":
            visit.start()

    async def _act(self, visit: Visit, route: PageRoute) -> PageAnswer:
        """Serve a POST. Raises Forbidden for one that no form of the user's session has sent."""
        given = visit.form.get(CSRF_FIELD) or visit.exchange.headers.get(_CSRF_HEADER, b"").decode("latin-1")
        session = visit.session
        if session is None or not hmac.compare_digest(session.csrf.encode(), given.encode("utf-8", "replace")):
            raise Forbidden(reason="The form is not one of this session. Load the page again, and repeat the action.")
        if route.writes and self._frame.read_only:
            raise Forbidden(reason="The console is read-only here: `console.read_only` is set.")
        exchange = visit.exchange
        if isinstance(exchange, AuditedExchange):
            exchange.changes = route.writes
            exchange.require_record()
        outcome = "failed"
        try:
            answer = await route.handler(visit)
            outcome = str(answer.status)
        except BabelgateError as error:
            outcome = error.problem_code
            raise
        finally:
            if route.writes:
                log.info(
                    "console action",
                    caller=visit.caller.name,
                    action=route.path,
                    queue=visit.parameters.get("queue"),
                    outcome=outcome,
                    **exchange.ids(),
                )
        return answer

    async def _read(self, exchange: Exchange, limit: int) -> bytes:
        """The body of a request. Raises BodyTooLarge, Overloaded, ClientGone."""
        with self._frame.gateway.admission.other("", min(exchange.announced, limit)) as permit:
            return await read(exchange, limit, permit)


async def _form(exchange: Exchange, body: bytes) -> dict[str, str]:
    if not body:
        return {}
    if media_type(exchange) != _FORM:
        raise UnsupportedMediaType(reason=f"The console takes forms, which are {_FORM.decode()}.")
    try:
        text = body.decode("ascii")
        return await turns.run(fields, text, size=len(text))
    except ValueError:
        raise InvalidParameter(name="form", reason="it is not a form in UTF-8") from None


def _comes_from_elsewhere(exchange: Exchange) -> bool:
    """Whether a user followed a link on a page of another site. The browser then sends no cookie of ours, so that the
    answer is a page that opens the address again. https://www.w3.org/TR/fetch-metadata/"""
    headers = exchange.headers
    return (
        headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site")
        and headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest") == b"document"
    )


def _here(exchange: Exchange, visit: Visit) -> str:
    query = exchange.scope["query_string"].decode("latin-1")
    return f"{visit.path}?{query}" if query else visit.path
