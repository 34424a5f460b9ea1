"""Signatures of Standard Webhooks: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence

PREFIX = "whsec_"
SECRET_BYTES = (24, 64)
"""Least and most bytes of a secret, by the specification."""
SECRET_PATTERN = "^whsec_[A-Za-z0-9+/]{32,84}={0,2}$"
"""What most secrets match, for schemas."""
SAMPLE = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="
"""A secret for examples."""
_is_plain_id = re.compile(r"[A-Za-z0-9_-]{1,120}").fullmatch


def secret_of(text: str) -> bytes:
    """The bytes of a secret ``whsec_…``. Raises ValueError with a sentence that does not quote it."""
    encoded = text.removeprefix(PREFIX)
    try:
        secret = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not text.startswith(PREFIX) or not SECRET_BYTES[0] <= len(secret) <= SECRET_BYTES[1]:
        least, most = SECRET_BYTES
        raise ValueError(
            f"must be {PREFIX} followed by base64 of {least} to {most} random bytes, as `echo {PREFIX}$(openssl rand "
            "-base64 32)` prints it"
        )
    return secret


def webhook_id(message_id: str) -> str:
    """The ``webhook-id`` of a message, the same at each attempt: its id, or a hash of an id with other characters.

    An id is part of a header and of the signed text, whose parts are separated by full stops.
    """
    if _is_plain_id(message_id):
        return message_id
    return "msg_" + hashlib.sha256(message_id.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def signatures(secrets: Sequence[bytes], identity: str, seconds: int, body: bytes) -> str:
    """The header ``webhook-signature``: one signature for each secret, so that receivers can change theirs meanwhile.

    ``seconds``: Unix time of the attempt, the value of ``webhook-timestamp``.
    """
    signed = b"%s.%d.%s" % (identity.encode("ascii"), seconds, body)
    return " ".join("v1," + b64encode(hmac.digest(secret, signed, "sha256")).decode("ascii") for secret in secrets)
