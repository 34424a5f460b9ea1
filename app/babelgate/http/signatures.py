"""Checks who has sent a body: an HMAC of it in a header, as most senders of webhooks sign.

https://www.rfc-editor.org/rfc/rfc2104
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from babelgate.http.problems import InvalidSignature
from babelgate.jsontext import digits

_MAX_SIGNATURES = 16
"""Most signatures of one request that are compared. Senders send one for each of their secrets."""
_MAX_DIGITS = 12

Algorithm = Literal["sha256", "sha512", "sha1"]


class SignatureCheck(Struct, frozen=True, kw_only=True):
    """How a sender signs. Names of headers are in lower case.

    ``header`` has one signature, or several that ``separator`` divides; those that count begin with ``prefix``.
    ``payload`` is what is signed: the text before and after ``{timestamp}``, ``{id}`` and ``{body}``. The time stamp,
    Unix seconds, is in ``timestamp_header``; or, with ``timestamp_prefix``, among the parts of that header.
    """

    header: str
    secrets: Sequence[bytes]
    algorithm: Algorithm = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: str = ""
    separator: str = ""
    payload: str = "{body}"
    timestamp_header: str | None = None
    timestamp_prefix: str = ""
    id_header: str | None = None
    tolerance_seconds: float = 300

    def __repr__(self) -> str:
        # Without the secrets: a log or a traceback may show it.
        return f"SignatureCheck(header={self.header!r})"

    def verify(self, fields: Mapping[bytes, bytes], body: bytes, now: int) -> None:
        """Raise InvalidSignature unless a header of ``fields`` signs ``body`` at about ``now`` (Unix milliseconds)."""
        given = [
            part.removeprefix(self.prefix)
            for part in self._parts(fields, self.header)
            if part.startswith(self.prefix) and len(part) > len(self.prefix)
        ]
        if not given:
            raise self._refusal(self.header, f"The header {self.header} has no signature of the expected form.")
        signed = self._signed(fields, body, now)
        # Each signature is compared with that of each secret, in constant time and to the end.
        expected = [self._text(hmac.digest(secret, signed, self.algorithm)) for secret in self.secrets]
        texts = [text.lower() if self.encoding == "hex" else text for text in given[:_MAX_SIGNATURES]]
        found = False
        for text in texts:
            for each in expected:
                found |= hmac.compare_digest(text.encode("latin-1"), each)
        if not found:
            raise self._refusal(self.header, f"No signature in the header {self.header} is one of the body.")

    def _parts(self, fields: Mapping[bytes, bytes], header: str) -> list[str]:
        text = fields.get(header.encode("ascii"), b"").decode("latin-1")
        return [part.strip(" \t") for part in (text.split(self.separator) if self.separator else (text,))]

    def _signed(self, fields: Mapping[bytes, bytes], body: bytes, now: int) -> bytes:
        values = {"{timestamp}": b"", "{id}": b""}
        if self.timestamp_header is not None:
            values["{timestamp}"] = self._timestamp(fields, self.timestamp_header, now)
        if self.id_header is not None:
            values["{id}"] = fields.get(self.id_header.encode("ascii"), b"")
            if not values["{id}"]:
                raise self._refusal(self.id_header, f"The header {self.id_header}, which is signed, is missing.")
        before, _, after = self.payload.partition("{body}")
        filled = [text.encode() for text in (before, after)]
        for name, value in values.items():
            filled = [text.replace(name.encode(), value) for text in filled]
        return filled[0] + body + filled[1]

    def _timestamp(self, fields: Mapping[bytes, bytes], header: str, now: int) -> bytes:
        parts = (
            self._parts(fields, header)
            if self.timestamp_prefix
            else [fields.get(header.encode(), b"").decode("latin-1")]
        )
        text = next((part for part in parts if part.startswith(self.timestamp_prefix)), "")
        text = text.removeprefix(self.timestamp_prefix)
        seconds = digits(text) if len(text) <= _MAX_DIGITS else None
        if seconds is None:
            raise self._refusal(header, f"The header {header} has no time stamp in Unix seconds.")
        if abs(now / 1000 - seconds) > self.tolerance_seconds:
            reason = (
                f"The time stamp in the header {header} differs by more than {self.tolerance_seconds:g} s from now."
            )
            raise self._refusal(header, reason)
        return text.encode("ascii")

    def _text(self, digest: bytes) -> bytes:
        return digest.hex().encode("ascii") if self.encoding == "hex" else b64encode(digest)

    def _refusal(self, header: str, reason: str) -> InvalidSignature:
        return InvalidSignature(reason=reason, header=header)
