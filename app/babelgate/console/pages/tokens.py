"""The tokens that the gateway has made: listed, made, rotated, revoked. A secret is shown once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from pydantic import ValidationError

from babelgate.console.answers import PageAnswer
from babelgate.console.faults import FormRefusal, faults_of, reasons_of
from babelgate.console.routes import PageRoute
from babelgate.console.visits import TOKENS, Visit
from babelgate.errors import BabelgateError, InvalidParameter
from babelgate.gateway.authorization import Right
from babelgate.http.problems import NotFound, detail_of, status_of
from babelgate.http.token_views import RotationRequest, TokenRequest
from babelgate.http.tokens import make, noted
from babelgate.jsontext import digits
from babelgate.tokens.errors import TokenNameTaken
from babelgate.tokens.grants import grants
from babelgate.tokens.tokens import TokenChange, Tokens

_FIELDS = ("name", "rights", "days", "origins", "per_minute", "max_message_bytes")
_EMPTY = dict.fromkeys(_FIELDS, "") | {"days": "90"}
_DAY_SECONDS = 86_400
_OF_FORM = {"ttl_seconds": "days"}
"""Fields that are called otherwise than the members of a request."""


async def show(visit: Visit) -> PageAnswer:
    """The valid tokens whose queues the user manages, and the form for another one."""
    return _page(visit)


async def create(visit: Visit) -> PageAnswer:
    """Make a token and show its secret. The form again if it is refused."""
    tokens = _tokens(visit)
    visit.caller.require_anywhere(Right.MANAGE)
    try:
        made = await make(tokens, visit.caller, TokenRequest.model_validate(_request(visit.form)))
    except ValidationError as error:
        faults: dict[str, str] = {}
        for place, reason in reasons_of(error, _schema()):
            name = str(place[1] if place[0] == "page" and len(place) > 1 else place[0])
            faults.setdefault(_OF_FORM.get(name, name), reason)
        refusal = FormRefusal("The token was not made.", faults)
        return _page(visit, refusal=refusal)._replace(status=400)
    except BabelgateError as error:
        faults = {_OF_FORM.get(name, name): reason for name, reason in faults_of(error).items()}
        if isinstance(error, TokenNameTaken):
            faults = {"name": detail_of(error)}
        refusal = FormRefusal(f"The token was not made. {detail_of(error)}", faults)
        return _page(visit, refusal=refusal)._replace(status=status_of(error))
    return _page(visit, made=made)


async def rotate(visit: Visit) -> PageAnswer:
    """Give a token another secret, and show it."""
    minutes = digits(visit.form.get("overlap_minutes", ""))
    if minutes is None:
        raise InvalidParameter(name="overlap_minutes", reason="must be a whole number of minutes")
    try:
        order = RotationRequest(overlap_seconds=minutes * 60.0)
    except ValidationError as error:
        reason = reasons_of(error, RotationRequest.model_json_schema())[0][1]
        raise InvalidParameter(name="overlap_minutes", reason=f"in seconds {reason}") from None
    changed = await _tokens(visit).rotate(visit.caller, visit.parameters["id"], order.overlap_seconds)
    return _page(visit, made=noted(changed))


async def revoke(visit: Visit) -> PageAnswer:
    """Make a token invalid, and say which processes know it."""
    change = noted(await _tokens(visit).revoke(visit.caller, visit.parameters["id"]))
    return visit.see_other(TOKENS, f"The token {change.token.name} is revoked. {change.detail}")


def _page(visit: Visit, refusal: FormRefusal | None = None, made: TokenChange | None = None) -> PageAnswer:
    fields = {name: visit.form.get(name, "") for name in _FIELDS} if refusal else _EMPTY
    return visit.page(
        "tokens.html",
        tokens=_tokens(visit).listed(visit.caller),
        fields=fields,
        faults=dict.fromkeys(_FIELDS, "") | dict(refusal.faults if refusal else {}),
        refused="" if refusal is None else refusal.detail,
        made=made,
    )


def _tokens(visit: Visit) -> Tokens:
    tokens = visit.frame.tokens
    if tokens is None:
        raise NotFound(visit.exchange.path, "This gateway makes no tokens.")
    return tokens


def _request(form: Mapping[str, str]) -> dict[str, Any]:
    """The form as the body of a call."""
    rights = grants(form.get("rights", "").splitlines())
    days = _number(form.get("days", "").strip())
    try:
        ttl_seconds = days if isinstance(days, str) else days * float(_DAY_SECONDS)
    except OverflowError:
        ttl_seconds = math.inf
    request: dict[str, Any] = {"name": form.get("name", "").strip(), "rights": rights, "ttl_seconds": ttl_seconds}
    bounds = {name: _number(text) for name in _FIELDS[4:] if (text := form.get(name, "").strip())}
    origins = form.get("origins", "").split()
    if origins or bounds:
        request["page"] = {"origins": origins, **bounds}
    return request


def _number(text: str) -> int | float | str:
    """The number in a field; other text as it is, for the sentence that refuses it."""
    if text.isascii() and "_" not in text:
        for kind in (int, float):
            with suppress(ValueError):
                return kind(text)
    return text


@cache
def _schema() -> dict[str, Any]:
    return TokenRequest.model_json_schema()


_OF_ONE = f"{TOKENS}/{{id}}"

ROUTES = (
    PageRoute(method="GET", path=TOKENS, handler=show, menu="Tokens"),
    PageRoute(method="POST", path=TOKENS, handler=create),
    # The page with the secret, when it is loaded again.
    PageRoute(method="GET", path=f"{_OF_ONE}/rotate", handler=show),
    PageRoute(method="POST", path=f"{_OF_ONE}/rotate", handler=rotate),
    PageRoute(method="POST", path=f"{_OF_ONE}/revoke", handler=revoke),
)
