"""The push of a queue: where its messages are posted to, how that goes, and the form to set it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

from pydantic import ValidationError

from babelgate.console.answers import PageAnswer
from babelgate.console.faults import FormRefusal, faults_of, reasons_of
from babelgate.console.pages.queue import path_of, shared
from babelgate.console.routes import PageRoute
from babelgate.console.visits import Visit
from babelgate.errors import BabelgateError
from babelgate.gateway.authorization import Right
from babelgate.http.problems import NotFound, detail_of, status_of
from babelgate.http.push_views import PushRequest, PushView
from babelgate.push.bodies import BodyFormat
from babelgate.push.errors import PushNotFound
from babelgate.push.pushes import Pushes, PushInfo
from babelgate.push.samples import PushTest
from babelgate.push.signing import PREFIX
from babelgate.push.targets import PushTarget

_NUMBERS = ("max_messages", "concurrency", "per_second", "timeout_seconds")
_SHOWN = ("url", "body", "reject_statuses", *_NUMBERS)
_BODIES: Mapping[BodyFormat, str] = {
    "envelope": "the envelope",
    "data": "its data alone",
    "cloudevents": "an event of CloudEvents",
    "cloudevents_binary": "an event in the binary mode",
}
assert _BODIES.keys() == {*get_args(BodyFormat)}
_HIDDEN = ("secrets", "headers")
"""What the form takes, and no page shows again."""


async def show(visit: Visit) -> PageAnswer:
    """The push and its state, or the state alone."""
    return _page(visit)


async def put(visit: Visit) -> PageAnswer:
    """Set the push. The form again, without its secrets, if it is refused."""
    queue = visit.parameters["queue"]
    visit.gateway.access(visit.caller, Right.MANAGE, queue)
    pushes = _pushes(visit)
    try:
        request = PushRequest.model_validate(_request(visit.form, _info(visit)))
        await pushes.put(visit.caller, queue, request.target)
    except ValidationError as error:
        refusal = FormRefusal("The push was not set.", _faults(error))
        return _page(visit, refusal=refusal)._replace(status=400)
    except BabelgateError as error:
        refusal = FormRefusal(f"The push was not set. {detail_of(error)}", faults_of(error))
        return _page(visit, refusal=refusal)._replace(status=status_of(error))
    return visit.see_other(_path(queue), "The push was set.")


async def remove(visit: Visit) -> PageAnswer:
    """Push the queue no more."""
    queue = visit.parameters["queue"]
    await _pushes(visit).delete(visit.caller, queue)
    return visit.see_other(_path(queue), "The push was removed.")


async def pause(visit: Visit) -> PageAnswer:
    """Stop the push until somebody resumes it."""
    return await _set_paused(visit, True)


async def resume(visit: Visit) -> PageAnswer:
    """Go on with the push."""
    return await _set_paused(visit, False)


async def try_target(visit: Visit) -> PageAnswer:
    """Post a message that is on no queue, and show the answer."""
    tested = await _pushes(visit).test(visit.caller, visit.parameters["queue"])
    return _page(visit, tested=tested)


async def _set_paused(visit: Visit, paused: bool) -> PageAnswer:
    queue = visit.parameters["queue"]
    await _pushes(visit).set_paused(visit.caller, queue, paused)
    return visit.see_other(_path(queue), "The push was paused." if paused else "The push was resumed.")


def _page(visit: Visit, refusal: FormRefusal | None = None, tested: PushTest | None = None) -> PageAnswer:
    info = _info(visit)
    fields = {name: visit.form.get(name, "") for name in _SHOWN} if refusal else _fields(info)
    return visit.page(
        "push.html",
        "push_live.html",
        **shared(visit, "push"),
        push=None if info is None else PushView.of(info),
        fields=fields | dict.fromkeys(_HIDDEN, ""),
        faults=dict.fromkeys((*_SHOWN, *_HIDDEN), "") | dict(refusal.faults if refusal else {}),
        refused="" if refusal is None else refusal.detail,
        tested=tested,
        bodies=_BODIES,
    )


def _pushes(visit: Visit) -> Pushes:
    pushes = visit.frame.pushes
    if pushes is None:
        raise NotFound(visit.exchange.path, "This process pushes nothing.")
    return pushes


def _info(visit: Visit) -> PushInfo | None:
    """The push of the queue; None without one. Raises Forbidden."""
    try:
        return _pushes(visit).info(visit.caller, visit.parameters["queue"])
    except PushNotFound:
        return None


def _fields(info: PushInfo | None) -> dict[str, str]:
    """The fields of the form for a push as it is. An address may be a secret, too, so that its field stays empty."""
    target = PushTarget("", ()) if info is None else info.target
    numbers = {name: "" if (value := getattr(target, name)) is None else f"{value:.15g}" for name in _NUMBERS}
    return {"url": "", "body": target.body, "reject_statuses": ", ".join(map(str, target.reject_statuses)), **numbers}


def _request(form: Mapping[str, str], info: PushInfo | None) -> dict[str, Any]:
    """The form as the body of a call. The present secrets and headers are kept with the present address only: whoever
    names another one does not get them."""
    request: dict[str, Any] = {}
    url = form.get("url", "").strip()
    if info is not None and url in ("", info.target.url):
        request |= _kept(info.target)
    elif url:
        request["url"] = url
    if secrets := form.get("secrets", "").split():
        request["secrets"] = secrets
    if form.get("no_headers") == "1":
        request["headers"] = {}
    if lines := [line for line in form.get("headers", "").splitlines() if line.strip()]:
        pairs = (line.partition(":") for line in lines)
        request["headers"] = {name.strip(): value.strip() for name, _, value in pairs}
    if body := form.get("body"):
        request["body"] = body
    request |= {name: _number(text) for name in _NUMBERS if (text := form.get(name, "").strip())}
    request["reject_statuses"] = [_number(each) for each in form.get("reject_statuses", "").replace(",", " ").split()]
    return request


def _kept(target: PushTarget) -> dict[str, Any]:
    secrets = [PREFIX + b64encode(each).decode() for each in target.secrets]
    return {"url": target.url, "secrets": secrets, "headers": dict(target.headers)}


def _number(text: str) -> int | float | str:
    """The number in a field; other text as it is, for the sentence that refuses it."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _faults(error: ValidationError) -> dict[str, str]:
    found: dict[str, str] = {}
    for place, reason in reasons_of(error, _schema()):
        found.setdefault(str(place[0]), reason)
    return found


@cache
def _schema() -> dict[str, Any]:
    return PushRequest.model_json_schema()


def _path(queue: str) -> str:
    return f"{path_of(queue)}/push"


_BASE = "queues/{queue}/push"

ROUTES = (
    PageRoute(method="GET", path=_BASE, handler=show),
    PageRoute(method="POST", path=_BASE, handler=put),
    PageRoute(method="POST", path=f"{_BASE}/remove", handler=remove),
    PageRoute(method="POST", path=f"{_BASE}/pause", handler=pause),
    PageRoute(method="POST", path=f"{_BASE}/resume", handler=resume),
    # The page with the answer updates itself under its own address.
    PageRoute(method="GET", path=f"{_BASE}/test", handler=show),
    PageRoute(method="POST", path=f"{_BASE}/test", handler=try_target),
)
