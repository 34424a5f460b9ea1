"""Heads: reads those of requests, and writes those of answers. A head that two programs could read differently is
refused.

All ways to serve a request read its path here, in the normal form of RFC 3986, section 6.2.2: an escape of an
unreserved character is that character (``%71`` is ``q``), any other escape stays (``%2F`` is no slash, ``%3A`` no
colon). A proxy that normalises a path in this way, or compares it as it is, sees the same segments.
"""

from __future__ import annotations

import itertools
import re
import secrets
import string
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qsl

from babelgate.errors import InvalidParameter
from babelgate.http.problems import MalformedHttp, RawHeaders

_SINGLE = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"origin",
        b"sec-fetch-site",
        b"transfer-encoding",
    }
)
"""Fields that may occur only once: authentication, or the reading of the body, depends on each."""
MAX_REQUEST_ID = 128
_PROCESS = secrets.token_hex(8).encode()
_count = itertools.count(1)
_VISIBLE = frozenset(range(0x21, 0x7F))
_CONTROL = re.compile(rb"[\x00-\x08\n-\x1f\x7f]")
"""Bytes that a field's value cannot have: https://www.rfc-editor.org/rfc/rfc9110#section-5.5"""
MAX_QUERY_BYTES = 8_000
"""Maximum length of a query: what servers should support at least (RFC 9110, section 4.1)."""
MAX_QUERY_PARAMETERS = 20
"""Maximum number of parameters in a query; no endpoint has as many."""
_HOP_HEADERS = frozenset({b"upgrade", b"http2-settings"})
_HOST = re.compile(rb"(\[[0-9A-Za-z:.%_~-]+\]|[A-Za-z0-9._~%!$&'()*+,;=-]*)(:[0-9]*)?")
"""``uri-host [":" port]`` of RFC 9110, section 7.2; the host may be empty."""
_MAX_REMEMBERED = 256
"""Maximum bytes of a target or a host that is remembered."""
_ORIGIN = re.compile(rb"https?://[^/?#]*", re.IGNORECASE)
"""Scheme and host of an absolute target: https://www.rfc-editor.org/rfc/rfc9112#section-3.2.2"""
_NOT_IN_PATH = re.compile(rb"[^A-Za-z0-9._~!$&'()*+,;=:@/%-]|%(?![0-9A-Fa-f]{2})")
"""Also an incomplete escape: https://www.rfc-editor.org/rfc/rfc3986#section-3.3"""
_NOT_IN_QUERY = re.compile(rb"[^!$-;=?-~]|%(?![0-9A-Fa-f]{2})")
"""The characters that both standards forbid. RFC 3986, section 3.4, also forbids ``[]\\^`{|}``, which browsers send:
https://url.spec.whatwg.org/#query-percent-encode-set"""
_ESCAPE = re.compile(rb"%[0-9A-Fa-f]{2}")
_UNESCAPED = {b"%%%02X" % ord(each): each.encode() for each in string.ascii_letters + string.digits + "-._~"}
"""The unreserved characters by their escapes."""


def check_repeated(headers: RawHeaders) -> None:
    """Raise MalformedHttp for a repeated field that may occur only once. Names are in lower case."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name in _SINGLE:
            raise MalformedHttp(kind="header", reason=f"The field {name.decode('ascii')} occurs more than once.")
        seen.add(name)


def check_head(version: str, target: bytes, headers: RawHeaders) -> dict[bytes, bytes]:
    """The fields of a head by their names, which are in lower case. Raise MalformedHttp for a head that a server must
    not serve.

    RFC 9112, section 3.2: one valid Host, optional in HTTP/1.0. Section 3.2.2: an absolute target replaces Host, so
    both must name the same host. Section 6.1: no Transfer-Encoding in HTTP/1.0; this server supports only ``chunked``.
    The parser itself refuses two Content-Length fields, and one beside Transfer-Encoding.
    """
    fields = dict(headers)
    if len(fields) < len(headers):
        check_repeated(headers)
    host = fields.get(b"host")
    if host is None:
        if version >= "1.1":
            raise MalformedHttp(kind="header", reason="An HTTP/1.1 request must have a field host.")
    elif not (_is_host(host) if len(host) <= _MAX_REMEMBERED else _matches_host(host)):
        raise MalformedHttp(kind="header", reason="The field host is not a host with an optional port.")
    if not target.startswith(b"/") and _authority(target) != (host or b"").strip().lower():
        raise MalformedHttp(kind="target", reason="The target of the request and its field host name different hosts.")
    coding = fields.get(b"transfer-encoding")
    if coding is not None and (version < "1.1" or coding.strip().lower() != b"chunked"):
        raise MalformedHttp(kind="framing", reason="The only transfer-encoding is chunked, in HTTP/1.1.")
    return fields


class RequestTarget(NamedTuple):
    """The parts of a request's target: the path, in normal form and as its bytes, the query, and the last two segments
    of the path, which are a queue and a verb if the path is that of a hot endpoint."""

    path: str
    raw_path: bytes
    query: bytes
    queue: str
    verb: str


def target_of(url: bytes) -> RequestTarget:
    """Parse a request's target: a path with an optional query, or a URL with them. Raises MalformedHttp."""
    return _remembered(url) if len(url) <= _MAX_REMEMBERED else _parsed(url)


def _parsed(url: bytes) -> RequestTarget:
    local = url
    if not url.startswith(b"/"):
        origin = _ORIGIN.match(url)
        if origin is None:
            raise MalformedHttp(
                kind="target", reason="The target of the request is neither a path nor a URL of http or https."
            )
        local = url[origin.end() :]
    raw_path, _, query = local.partition(b"?")
    check_target(raw_path, query)
    path = path_of(raw_path or b"/")
    rest, _, verb = path.rpartition("/")
    return RequestTarget(path, raw_path or b"/", query, rest.rpartition("/")[2], verb)


_remembered = lru_cache(maxsize=1024)(_parsed)


def check_target(raw_path: bytes, query: bytes) -> None:
    """Raise MalformedHttp for a character that cannot be in a target unescaped, such as the ``#`` of a fragment."""
    found = _NOT_IN_PATH.search(raw_path) or _NOT_IN_QUERY.search(query)
    if found is None:
        return
    if found[0] == b"#":
        raise MalformedHttp(kind="target", reason="The target of the request has a fragment.")
    if found[0] == b"%":
        raise MalformedHttp(kind="target", reason="The target of the request has a % without two hexadecimal digits.")
    raise MalformedHttp(
        kind="target", reason=f"The target of the request has the byte 0x{found[0][0]:02x}, which must be escaped."
    )


def check_query(query: bytes) -> None:
    """Raise InvalidParameter for a query that is not worth parsing, because it has too many bytes or parameters."""
    if len(query) > MAX_QUERY_BYTES:
        reason = f"{len(query)} bytes; a query has at most {MAX_QUERY_BYTES}"
        raise InvalidParameter(name="query", reason=reason, parameter="")
    if (count := query.count(b"&") + 1) > MAX_QUERY_PARAMETERS:
        reason = f"{count} parameters; a query has at most {MAX_QUERY_PARAMETERS}"
        raise InvalidParameter(name="query", reason=reason, parameter="")


def parameters_of(query: bytes) -> list[tuple[str, str]]:
    """The names and values in a query. Raises InvalidParameter."""
    check_query(query)
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise InvalidParameter(name="query", reason="it is not a query string in UTF-8", parameter="") from None


def path_of(raw_path: bytes) -> str:
    """The normal form of a path. Its own normal form is itself, so no path is decoded twice."""
    return _ESCAPE.sub(_normal, raw_path).decode("latin-1")


def _normal(escape: re.Match[bytes]) -> bytes:
    upper = escape[0].upper()
    return _UNESCAPED.get(upper, upper)


def without_upgrade(method: bytes, target: bytes, version: str, headers: RawHeaders) -> bytes:
    """The head of a request that offers an upgrade, without the offer; one of a WebSocket for a stream is kept."""
    lines = [b"%s %s HTTP/%s" % (method, target, version.encode())]
    for name, value in headers:
        if name in _HOP_HEADERS:
            # The handler of a stream answers it, or refuses the request.
            if name == b"upgrade" and value.strip().lower() == b"websocket" and _is_stream(method, target):
                lines.append(b"upgrade: websocket")
            continue
        if name == b"connection":
            kept = [token.strip() for token in value.split(b",") if token.strip().lower() not in _HOP_HEADERS]
            if not kept:
                continue
            value = b", ".join(kept)
        lines.append(name + b": " + value)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _is_stream(method: bytes, target: bytes) -> bool:
    return method == b"GET" and target.partition(b"?")[0].endswith(b"/messages:stream")


def request_id_of(fields: Mapping[bytes, bytes]) -> bytes:
    """The request's own id, if it has a usable one; else a new one."""
    given = fields.get(b"x-request-id")
    if given is not None and 0 < len(given) <= MAX_REQUEST_ID and _VISIBLE.issuperset(given):
        return given
    return b"%b-%x" % (_PROCESS, next(_count))


def head_lines(content_type: bytes, length: int, request_id: bytes, headers: RawHeaders | None = None) -> bytes:
    """The lines of an answer's head, with those of ``headers``. Raises RuntimeError for a control character in one of
    their values."""
    usual = b"content-type: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n" % (content_type, length, request_id)
    if not headers:
        return usual
    if _CONTROL.search(b"".join([value for _, value in headers])):
        raise RuntimeError("Invalid HTTP header value.")
    return usual + b"".join([b"%b: %b\r\n" % field for field in headers])


def _matches_host(value: bytes) -> bool:
    return _HOST.fullmatch(value.strip(b" \t")) is not None


_is_host = lru_cache(maxsize=16)(_matches_host)


def _authority(target: bytes) -> bytes:
    """The host and port of an absolute target, in lower case."""
    return re.split(rb"[/?#]", target.partition(b"://")[2], maxsplit=1)[0].lower()
