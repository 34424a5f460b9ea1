"""A target: where the messages of a queue are pushed to, and how."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from babelgate.push.addresses import AddressGuard
from babelgate.push.bodies import BodyFormat

CONCURRENCY, MAX_CONCURRENCY = 10, 1_000
TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS = 30.0, 3_600.0
REJECT_STATUSES = (410,)
MAX_MESSAGES = 100
MAX_URL = 2_000
URL_PATTERN = "^https?://[A-Za-z0-9.-]+(:[0-9]+)?(/[!-~]*)?$"
"""What most URLs match, for schemas."""

_is_header = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,64}").fullmatch
_is_value = re.compile(r"[\x21-\x7e]([\t\x20-\x7e]{0,4094}[\x21-\x7e])?").fullmatch
_OWN_HEADERS = frozenset(
    {
        *("accept-encoding", "attempts", "connection", "content-encoding", "content-length", "content-type", "expect"),
        *("host", "job", "keep-alive", "queue", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
_OWN_BEGINNINGS = ("webhook-", "proxy-", "trace", "baggage", "ce-")


@dataclass(frozen=True, slots=True)
class PushTarget:
    """Where the messages of one queue are pushed to. ``url`` and ``headers`` may contain secrets.

    ``concurrency``: most posts at a time, of one process. ``per_second``: most posts a second of one process; None: no
    bound. ``timeout_seconds``: the time for a whole post, up to the head of the answer. ``reject_statuses``: answers
    that dead-letter the message at once. ``secrets``: each signs every post. ``max_messages``: most messages in one
    post, as a list; None: one message, without a list.
    """

    url: str
    secrets: Sequence[bytes]
    body: BodyFormat = "envelope"
    concurrency: int = CONCURRENCY
    per_second: float | None = None
    timeout_seconds: float = TIMEOUT_SECONDS
    reject_statuses: Sequence[int] = REJECT_STATUSES
    headers: Sequence[tuple[str, str]] = ()
    max_messages: int | None = None

    @property
    def host(self) -> str:
        """The host and port of the URL, for logs and errors: the path may be a secret, too."""
        return urlsplit(self.url).netloc

    def __repr__(self) -> str:
        return f"PushTarget({self.host!r})"


def check_url(url: str) -> str:
    """Return ``url`` if a push can have it. Raises ValueError with a sentence without its subject."""
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"must be a URL of at most {MAX_URL} printable ASCII characters, percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("must be a URL with a valid host and port") from None
    if parts.scheme not in ("https", "http") or not parts.hostname or port == 0:
        raise ValueError("must be a URL such as https://shop.example/hooks/orders")
    if any(not 0 < len(label) <= 63 for label in parts.hostname.removesuffix(".").split(".")):
        raise ValueError("must be a URL with a valid host and port")
    if "@" in parts.netloc or parts.fragment:
        raise ValueError("must have neither a user nor a fragment; put credentials in headers")
    return url


def check_header(name: str, value: str) -> None:
    """Raise ValueError for a header that a target must not set."""
    lower = name.lower()
    if not _is_header(lower):
        raise ValueError("a name of a header must be 1 to 64 of the characters that HTTP allows")
    if lower in _OWN_HEADERS or lower.startswith(_OWN_BEGINNINGS):
        raise ValueError(f"the gateway sets the header {lower} itself")
    if not _is_value(value):
        raise ValueError(f"the value of the header {lower} must be 1 to 4,096 printable ASCII characters")


def refusal(url: str, guard: AddressGuard) -> str | None:
    """Why ``guard`` does not let a push have this URL, as far as the URL itself says it; None if it may.

    The addresses of a name are checked when a push connects.
    """
    parts = urlsplit(url)
    if parts.scheme == "http" and not guard.allow_http:
        return "must begin with https://, unless push.allow_http is set"
    try:
        ip_address(parts.hostname or "")
    except ValueError:
        return None
    why = guard.refusal(parts.hostname or "")
    return None if why is None else f"{why}: pushes connect to it only if push.allow_private or push.networks allows it"
