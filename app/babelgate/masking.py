"""Masks secrets in URLs, for logs and error texts."""

from __future__ import annotations

import re

MASK = "***"
# A password without percent-encoding may contain spaces, so everything up to the last @ of a line is masked.
_URL_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:.*@)?[^\s'\"<>]*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# Greedy up to the last @, because a password without percent-encoding may contain any character.
_USERINFO = re.compile(r"(?<=://)(?:(?P<user>[^:/?#@]*):.*|[^:/?#@]*)@")
# A part without a name may be a secret as a whole.
_QUERY = re.compile(r"(?<=[?&])(?:(?P<name>[^=&#]+)=[^&#]*|[^&#]+)")
_HARMLESS = frozenset({"db", "mode", "timeout", "protocol", "ssl_cert_reqs", "cache", "region", "heartbeat"})


def mask_url(url: str) -> str:
    """Replace the password of ``url``, and every part of its query that is not known to be harmless, by ``***``; names
    of the query stay.

    Any other text, such as a vendor's connection string, becomes ``***`` as a whole.
    """
    if not _SCHEME.match(url):
        return MASK
    masked = _USERINFO.sub(lambda found: f"{found['user']}:{MASK}@" if found["user"] is not None else f"{MASK}@", url)
    return _QUERY.sub(_masked_part, masked)


def _masked_part(found: re.Match[str]) -> str:
    name = found["name"]
    if name is None:
        return MASK
    return found[0] if name in _HARMLESS else f"{name}={MASK}"


def mask_value(text: str) -> str:
    """Mask ``text`` as one URL if it begins as one, whatever characters it has, else every URL in it."""
    return mask_url(text) if _SCHEME.match(text) else mask_text(text)


def mask_text(text: str) -> str:
    """Mask every URL in ``text``. Masks rather too much than too little."""
    return _URL_IN_TEXT.sub(lambda found: mask_url(found[0]), text) if "://" in text else text
