"""Checks of a request's head that hold for every path: what one program reads in it, every other one must read too."""

from __future__ import annotations

import re
from functools import lru_cache

from app.http.problems import MalformedHttp, RawHeaders

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
"""Fields of which a request has one at most. Who may call, or how the body is read, depends on each."""
_HOST = re.compile(rb"(\[[0-9A-Za-z:.%_~-]+\]|[A-Za-z0-9._~%!$&'()*+,;=-]*)(:[0-9]*)?")
"""``uri-host [":" port]`` of RFC 9110, section 7.2; an empty host is one."""


def check_repeated(headers: RawHeaders) -> None:
    """Raise MalformedHttp for a field that is repeated, and of which a request has one at most (lower-case names)."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name in _SINGLE:
            raise MalformedHttp(reason=f"A request has one field {name.decode('ascii')} at most.")
        seen.add(name)


def check_head(version: str, target: bytes, headers: RawHeaders) -> None:
    """Raise MalformedHttp for a head that a server must not serve (lower-case names).

    RFC 9112, section 3.2: one valid Host, which HTTP/1.0 may leave out. Section 3.2.2: an absolute target replaces
    Host, so it must name the same. Section 6.1: no Transfer-Encoding in HTTP/1.0, and here no coding but ``chunked``.
    The parser itself refuses two Content-Length, and one beside Transfer-Encoding.
    """
    fields = dict(headers)
    if len(fields) < len(headers):
        check_repeated(headers)
    host = fields.get(b"host")
    if host is None:
        if version >= "1.1":
            raise MalformedHttp(reason="An HTTP/1.1 request needs a field host.")
    elif not _is_host(host):
        raise MalformedHttp(reason="The field host is not a host with an optional port.")
    if not target.startswith(b"/") and _authority(target) != (host or b"").strip().lower():
        raise MalformedHttp(reason="The target of the request and its field host name different hosts.")
    coding = fields.get(b"transfer-encoding")
    if coding is not None and (version < "1.1" or coding.strip().lower() != b"chunked"):
        raise MalformedHttp(reason="The only transfer-encoding is chunked, in HTTP/1.1.")


@lru_cache(maxsize=16)
def _is_host(value: bytes) -> bool:
    return _HOST.fullmatch(value.strip(b" \t")) is not None


def _authority(target: bytes) -> bytes:
    """The host and port of an absolute target, in lower case."""
    return re.split(rb"[/?#]", target.partition(b"://")[2], maxsplit=1)[0].lower()
