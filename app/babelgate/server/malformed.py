"""Requests that the server refuses before any endpoint sees them: their kinds, their answers and their reports."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from ssl import SSLError
from typing import Any

import httptools

from babelgate.http.observers import MalformedRequest
from babelgate.http.problems import HttpError, MalformedHttp, raw_problem, status_of

MALFORMED = "babelgate.malformed"
"""The key of the observers of malformed requests in the lifespan's state, which the server passes to its connections.
Each is called with a MalformedRequest, and must not block or raise."""

_INVALID = "The bytes received are not a valid HTTP request."
_BY_TEXT = {
    "version": "version",
    "HTTP/": "version",
    "PRI": "version",
    "Content-Length": "framing",
    "Transfer-Encoding": "framing",
}
"""Kinds of what the parser finds in a head, by a part of its text. The parser has no codes for them."""


def problem_of(error: httptools.HttpParserError, in_head: bool) -> HttpError:
    """The problem of a request that the parser does not read on. ``in_head``: the head was not complete."""
    cause = error.__context__
    if isinstance(cause, HttpError):
        return cause
    if isinstance(error, httptools.HttpParserInvalidMethodError):
        kind = "request_line"
    elif isinstance(error, httptools.HttpParserInvalidURLError) or isinstance(
        cause, httptools.HttpParserInvalidURLError
    ):
        kind = "target"
    elif in_head:
        text = str(error)
        kind = next((kind for part, kind in _BY_TEXT.items() if part in text), "header")
    else:
        kind = "body"
    return MalformedHttp(kind=kind, reason=_INVALID)


def answer_to(error: HttpError) -> tuple[bytes, str]:
    """The whole answer to a refused request, which closes the connection, and its request id."""
    head, body = raw_problem(error)
    request_id = secrets.token_hex(16)
    return head + b"x-request-id: %b\r\nconnection: close\r\n\r\n" % request_id.encode() + body, request_id


def report(state: Mapping[str, Any], error: HttpError, client: str | None, request_id: str | None) -> None:
    """Report a refused request. ``error`` has its kind as a fact. ``request_id``: of the answer; None without one."""
    status = None if request_id is None else status_of(error)
    _report(state, MalformedRequest(error.facts["kind"], client, status, error.detail, request_id))


def report_handshake(state: Mapping[str, Any], error: Exception, client: str | None) -> None:
    """Report a TLS handshake that failed or took too long, or whose client has a certificate with names that are no
    text. A client that hung up is not reported, as without TLS."""
    if isinstance(error, SSLError):
        # OpenSSL's name of the fault, such as `WRONG_VERSION_NUMBER`; its text adds places of its source files.
        _report(state, MalformedRequest("tls_handshake", client, None, error.reason or "TLS error", None))
    elif isinstance(error, UnicodeDecodeError):
        _report(state, MalformedRequest("tls_handshake", client, None, "BAD_CERTIFICATE_NAME", None))
    elif isinstance(error, ConnectionAbortedError):
        _report(state, MalformedRequest("tls_timeout", client, None, "The TLS handshake took too long.", None))


def _report(state: Mapping[str, Any], request: MalformedRequest) -> None:
    for observe in state.get(MALFORMED, ()):
        observe(request)
