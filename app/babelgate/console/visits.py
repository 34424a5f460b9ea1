"""One request of a browser, as the handlers of pages see it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from babelgate.console.answers import HTML, PageAnswer
from babelgate.console.frame import ConsoleFrame
from babelgate.console.sessions import NOTICE_COOKIE, SESSION_COOKIE, SESSION_SECONDS, Session
from babelgate.errors import BabelgateError
from babelgate.gateway.authorization import NOBODY, OPERATORS, Caller, Right
from babelgate.gateway.gateway import Gateway
from babelgate.http.exchange import Exchange
from babelgate.http.heads import parameters_of
from babelgate.http.problems import detail_of, meaning, problem

ROOT = "/console"
TOKENS = "tokens"
"""The page of tokens, for those who may make some."""
REPORT = "report"
"""The page of the pipeline's report, for those who may look at every queue."""
_LETTERS = re.compile(r"^queues/[^/]+/dead-letters(?=/|$)")
"""The beginning of the addresses of the dead letters of a queue."""


class Visit:
    """``exchange``: the request. ``parameters``: of the path; ``query``: of the address; ``form``: of a POST: the last
    value of each name. ``caller``: the user, with the rights of the token; the caller ``nobody`` before the sign-in."""

    def __init__(self, frame: ConsoleFrame, exchange: Exchange) -> None:
        self.frame = frame
        self.exchange = exchange
        self.path = exchange.path.removeprefix(ROOT).removeprefix("/")
        self.parameters: Mapping[str, str] = {}
        self.form: Mapping[str, str] = {}
        self.caller: Caller = NOBODY
        self.session: Session | None = None
        self.is_new = False
        """Whether the browser does not have the cookie of the session yet."""

    @property
    def gateway(self) -> Gateway:
        """The gateway, whose operations take :attr:`caller`."""
        return self.frame.gateway

    @property
    def root(self) -> str:
        """What leads from this page to ``/console/``, in the form of a relative address, whatever prefix is before."""
        return "../" * self.path.count("/")

    @property
    def is_fragment(self) -> bool:
        """Whether a script of ours asks for a part of the page only."""
        headers = self.exchange.headers
        return b"hx-request" in headers and b"hx-history-restore-request" not in headers

    @cached_property
    def query(self) -> Mapping[str, str]:
        """The parameters of the address. Raises InvalidParameter."""
        return dict(parameters_of(self.exchange.scope["query_string"]))

    @cached_property
    def cookies(self) -> Mapping[str, str]:
        """The cookies of the request: the last of each name."""
        given = self.exchange.headers.get(b"cookie", b"").decode("latin-1")
        pairs = (part.partition("=") for part in given.split(";"))
        return {name.strip(): value.strip() for name, _, value in pairs}

    @property
    def has_access(self) -> bool:
        """Whether the user sees pages: after the sign-in, or where no credentials are configured."""
        return not self.frame.has_sign_in or (self.session is not None and bool(self.session.credential))

    @property
    def menu(self) -> list[tuple[str, str]]:
        """The address and the text of each link in the navigation that leads this user somewhere."""
        makes = self.frame.tokens is not None and bool(self.caller.patterns(Right.MANAGE))
        hidden = {TOKENS: not makes, REPORT: self.frame.report is None or not self.sees_all_queues}
        return [(path, text) for path, text in self.frame.menu if not hidden.get(path, False)]

    @property
    def sees_all_queues(self) -> bool:
        """Whether the user has ``observe`` or ``manage`` on every queue, by one pattern."""
        return not self.caller.rights("*").isdisjoint(OPERATORS)

    def is_below(self, path: str) -> bool:
        """Whether the page is that at ``path`` of the menu, or one that belongs to it. The dead letters of a queue
        belong to the dead letters."""
        place = _LETTERS.sub("dead-letters/", self.path)
        return place == path or (path != "" and place.startswith(f"{path}/"))

    def may(self, right: str, queue: str) -> bool:
        """Whether the user has ``right`` (``send``, ``listen``, ``manage``, ``observe``) on ``queue``, a name or a
        pattern: see :meth:`Caller.may`."""
        return self.caller.may(Right(right), queue)

    def may_change(self, right: str, queue: str) -> bool:
        """Whether the user may do something that changes ``queue`` and needs ``right``."""
        return not self.frame.read_only and self.may(right, queue)

    def page(self, template: str, fragment: str | None = None, *, status: int = 200, **context: Any) -> PageAnswer:
        """The page that ``template`` makes. It extends ``base.html``, and has the visit as ``visit``.

        ``fragment``: the template of the live part, which includes nothing of the base: it alone is the answer to a
        script that updates the page.
        """
        alone = fragment is not None and self.is_fragment
        notice = None if alone else self.frame.sessions.open_notice(self.cookies.get(NOTICE_COOKIE))
        body = self.frame.templates.render(
            fragment if alone and fragment else template,
            {
                "visit": self,
                "root": self.root,
                "asset": lambda name: self.root + self.frame.assets.address(name),
                "csrf": "" if self.session is None else self.session.csrf,
                "notice": notice,
                "status": status,
                **context,
            },
        )
        cookies = () if notice is None else (self._cookie(NOTICE_COOKIE, "", 0),)
        return PageAnswer(status, body, HTML, [], cookies)

    def see_other(self, path: str, notice: str | None = None) -> PageAnswer:
        """Send the browser to the page ``path`` below ``/console/`` by GET, which shows the text ``notice`` once."""
        cookies: tuple[bytes, ...] = ()
        if notice is not None:
            cookies = (self._cookie(NOTICE_COOKIE, self.frame.sessions.seal_notice(notice), 60),)
        # "./" keeps a colon in the path from looking like the end of a scheme.
        return PageAnswer(303, b"", HTML, [(b"location", f"./{self.root}{path}".encode("ascii"))], cookies)

    def start(self, credential: str = "") -> None:
        """Give the browser a new session, of the token of ``caller`` with this SHA-256."""
        signed = self.frame.auth.signed
        ticket = signed.ticket(credential) if signed is not None else b""
        self.session = self.frame.sessions.begin(credential, self.caller.ends_at, ticket)
        self.is_new = True

    def session_cookie(self) -> bytes:
        """The Set-Cookie field of the session, or the one that ends it."""
        if self.session is None:
            return self._cookie(SESSION_COOKIE, "", 0)
        return self._cookie(SESSION_COOKIE, self.frame.sessions.seal(self.session), SESSION_SECONDS)

    def failure(self, error: BabelgateError) -> PageAnswer:
        """The page that says in words what was refused or has failed."""
        status, headers, _ = problem(error, self.exchange.path)
        answer = self.page(
            "error.html",
            "error_text.html",
            status=status,
            title=meaning(error).title,
            detail=detail_of(error),
            code=error.problem_code,
            retryable=error.retryable,
            phrase=HTTPStatus(status).phrase,
            request_id=self.exchange.request_id.decode("ascii"),
            problems=error.facts.get("problems", []),
        )
        return answer._replace(headers=headers)

    def _cookie(self, name: str, value: str, seconds: int) -> bytes:
        headers = self.exchange.headers
        # A proxy that ends TLS does not say so, but the browser does.
        secure = self.exchange.scope.get("scheme") == "https" or headers.get(b"origin", b"").startswith(b"https://")
        path = f"{self.frame.prefix}{ROOT}"
        cookie = f"{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{'; Secure' * secure}"
        return cookie.encode("ascii")


def segment(text: str) -> str:
    """A name as one segment of a path."""
    return quote(text, safe="")
