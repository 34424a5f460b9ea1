"""Signing in with a bearer token, and out."""

from __future__ import annotations

import hashlib
import re

from babelgate.console.answers import PageAnswer
from babelgate.console.routes import PageRoute
from babelgate.console.visits import Visit
from babelgate.errors import BabelgateError, Unauthenticated
from babelgate.http.problems import problem
from babelgate.observe.audit.notes import note
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger

_PAGE = re.compile(r"(?!/)(?!.*(//|\.\.))[A-Za-z0-9._~:/?=&%+-]{0,2000}")
"""An address below ``/console/``, with its query."""

log = get_logger(__name__)
_throttled = LogThrottle(log)


async def form(visit: Visit) -> PageAnswer:
    """The form; a user who has signed in gets to the page that was asked for."""
    to = _page(visit.query.get("to", ""))
    if visit.has_access:
        return visit.see_other(to)
    return visit.page("sign_in.html", to=to, refused="")


async def sign_in(visit: Visit) -> PageAnswer:
    """Begin a session of the token in the form."""
    to = _page(visit.form.get("to", ""))
    token = visit.form.get("token", "").strip()
    credential = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
    auth = visit.frame.auth
    if auth.callers is None:
        return visit.see_other(to)
    refusal: BabelgateError = Unauthenticated()
    if auth.signed is not None and token:
        try:
            await auth.signed.learn(token.encode("utf-8", "replace"))
        except BabelgateError as error:
            refusal = error.without_frames()
    caller = auth.user(credential)
    if caller is None:
        _throttled.warning("sign-in refused: unknown token")
        refused = "This token is not one of this gateway." if token else "Enter a token."
        if type(refusal) is not Unauthenticated:
            refused = refusal.detail
        status, headers, _ = problem(refusal, visit.exchange.path)
        return visit.page("sign_in.html", status=status, to=to, refused=refused)._replace(headers=headers)
    visit.caller = caller
    visit.start(credential)
    note(caller=caller.name)
    log.info("sign-in", caller=caller.name, **visit.exchange.ids())
    return visit.see_other(to)


async def sign_out(visit: Visit) -> PageAnswer:
    """End the session in this browser."""
    log.info("sign-out", caller=visit.caller.name, **visit.exchange.ids())
    visit.session, visit.is_new = None, True
    return visit.see_other("sign-in", "You have signed out.")


def _page(text: str) -> str:
    """``text``, or the overview for anything but an address of the console."""
    return text if _PAGE.fullmatch(text) else ""


ROUTES = (
    PageRoute(method="GET", path="sign-in", handler=form, needs_user=False),
    PageRoute(method="POST", path="sign-in", handler=sign_in, needs_user=False, writes=False),
    PageRoute(method="POST", path="sign-out", handler=sign_out, writes=False),
)
