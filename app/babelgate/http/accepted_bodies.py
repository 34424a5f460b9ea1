"""Bodies of other senders, such as webhooks, that a route accepts and wraps into drafts.

A route lists their media types. The signature of a body is checked before anything else is done with it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from babelgate.clock import Clock
from babelgate.cloudevents import Place, is_binary
from babelgate.envelope.options import IDEMPOTENCY_KEY
from babelgate.errors import EnvelopeSyntaxError, InvalidIdempotencyKey, Problem
from babelgate.gateway.authorization import Caller
from babelgate.gateway.routing import Router
from babelgate.http.problems import UnsupportedMediaType
from babelgate.http.signatures import SignatureCheck
from babelgate.jsontext import JsonSyntaxError, JsonTooDeep, decode_object

EXT = "http"
"""The member of ``meta.ext`` with the headers that a route keeps."""
_JSON = b"application/json"
_MAX_TYPE = 1_000
"""Maximum characters of a media type with its parameters that a message keeps."""
_TEXTS = ("text/", "application/json", "application/xml", "application/x-www-form-urlencoded", "application/graphql")
_ENDS = ("+json", "+xml")

Into = Literal["body", "data"]
Fields = Mapping[bytes, bytes]
"""The header fields of a request by their names in lower case."""


class AcceptRule(Struct, frozen=True, kw_only=True):
    """One media type that a route accepts. Names of headers are in lower case.

    ``job``: of the messages; ``into``: ``body`` keeps the text or bytes as a member of ``data``, ``data`` takes a JSON
    object for it. ``sender``: who publishes when the signature stands for a token; None: a token is needed.
    ``idempotency_header``: has the idempotency key; ``headers``: those that the message keeps.
    """

    content_type: bytes
    job: str
    into: Into = "body"
    signature: SignatureCheck | None = None
    sender: Caller | None = None
    idempotency_header: str | None = None
    headers: Sequence[str] = ()

    def check_head(self, fields: Fields) -> None:
        """Raise UnsupportedMediaType for a signed body that is compressed: senders differ in what they sign then."""
        if self.signature is not None and b"content-encoding" in fields:
            raise UnsupportedMediaType(
                reason="A signed body must not have a Content-Encoding.", accept_encoding="identity"
            )

    def key(self, fields: Fields) -> str | None:
        """The idempotency key in the sender's header; None where the route names none. Raises InvalidIdempotencyKey."""
        if self.idempotency_header is None:
            return None
        key = fields.get(self.idempotency_header.encode("ascii"), b"").decode("latin-1").strip(" \t")
        if not IDEMPOTENCY_KEY.fullmatch(key):
            reason = f"the header {self.idempotency_header} must have 1 to 255 printable ASCII characters"
            raise InvalidIdempotencyKey(reason=reason, header=self.idempotency_header)
        return key

    def conversion(self, fields: Fields) -> _AcceptedBody:
        """The conversion of the body of a request with the header ``fields``."""
        kept = {name: fields[name.encode()].decode("latin-1") for name in self.headers if name.encode() in fields}
        given = fields.get(b"content-type", _JSON).decode("latin-1").strip()[:_MAX_TYPE]
        return _AcceptedBody(self, given, kept)


class _AcceptedBody(Struct, frozen=True):
    """A :class:`babelgate.http.conversions.Conversion` of a body to a draft."""

    rule: AcceptRule
    content_type: str
    headers: dict[str, str]

    def entry(self, body: bytes, queue: str, clock: Clock, trace_id: str | None) -> bytes:
        draft: dict[str, Any] = {"job": self.rule.job, "data": self._data(body)}
        if self.headers:
            draft["meta"] = {"ext": {EXT: self.headers}}
        return msgspec.json.encode(draft)

    def places(self, body: bytes, places: Iterable[str]) -> list[Place]:
        if self.rule.into == "body":
            return [Place("") for _ in places]
        return [Place(each.removeprefix("/data") if each.startswith("/data/") else "") for each in places]

    def sent(self, body: bytes) -> bytes:
        return body

    def _data(self, body: bytes) -> Any:
        if self.rule.into == "data":
            try:
                decode_object(body, ())
            except JsonSyntaxError as error:
                detail = f"The body is not one JSON object: {error}."
                raise EnvelopeSyntaxError([Problem("", "invalid_json", detail)]) from None
            except JsonTooDeep:
                detail = "The body is not one JSON object: it is nested too deeply."
                raise EnvelopeSyntaxError([Problem("", "invalid_json", detail)]) from None
            # It is one object, so nothing of it can become a member of the draft.
            return msgspec.Raw(body)
        kind = self.rule.content_type.decode("ascii")
        if kind.startswith(_TEXTS) or kind.endswith(_ENDS):
            try:
                return {"content_type": self.content_type, "body": body.decode()}
            except UnicodeDecodeError:
                pass
        return {"content_type": self.content_type, "body_base64": b64encode(body).decode("ascii")}


class AcceptedBodies:
    """What the routes accept. ``routes``: by the ``match`` of the rule; ``default``: what the default route accepts."""

    def __init__(
        self, router: Router, routes: Mapping[str, Sequence[AcceptRule]], default: Sequence[AcceptRule] = ()
    ) -> None:
        self._router = router
        self._routes = {match: {rule.content_type: rule for rule in rules} for match, rules in routes.items()}
        self._default = {rule.content_type: rule for rule in default}

    def of(self, queue: str, kind: bytes, fields: Fields) -> AcceptRule | None:
        """The rule for the body of a publish; None for one that is a message already. ``kind``: its media type."""
        rules = self._of_queue(queue)
        rule = rules.get(kind) if rules else None
        # An event in binary mode has the media type of its data.
        return None if rule is None or is_binary(fields) else rule

    def takes_json(self, queue: str) -> bool:
        """Whether a publish of ``application/json`` to ``queue`` is no message."""
        return _JSON in self._of_queue(queue)

    def _of_queue(self, queue: str) -> Mapping[bytes, AcceptRule]:
        rule = self._router.rule(queue)
        if rule is None:
            return {}
        return self._default if rule is self._router.default else self._routes.get(rule.match, {})
