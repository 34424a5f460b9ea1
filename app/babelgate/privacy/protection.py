"""What a record for people and for a disk has of a body: redacted, encrypted, or both."""

from __future__ import annotations

from msgspec import Struct

from babelgate.privacy.ciphers import BodyCipher, journal_context
from babelgate.privacy.redaction import EVERYTHING, Redaction


class Protection(Struct, frozen=True):
    """What becomes of the bodies of a queue in the journal. ``redaction`` None: nothing is redacted. ``cipher`` None:
    they are in clear. Usable by several threads at once."""

    redaction: Redaction | None = None
    cipher: BodyCipher | None = None

    def shown(self, body: bytes) -> bytes:
        """``body``, redacted."""
        return body if self.redaction is None else self.redaction.redacted(body)

    def in_clear(self, body: bytes) -> bytes:
        """``body``, redacted; where bodies are encrypted, without any value of ``data`` and ``meta.ext``."""
        return self.shown(body) if self.cipher is None else EVERYTHING.redacted(body)

    def encrypted(self, body: bytes, queue: str) -> bytes | None:
        """``body``, redacted and then encrypted; None where it is not encrypted."""
        return None if self.cipher is None else self.cipher.encrypted(self.shown(body), journal_context(queue))


HIDDEN = Protection(EVERYTHING)
"""Of a queue about which nothing is known."""
