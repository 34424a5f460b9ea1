"""Decrypts the bodies in lines of a journal, with their headers and ordering keys."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw

from babelgate.observe.journal.record import embedded
from babelgate.privacy.body_keys import opened, why
from babelgate.privacy.ciphers import BodyCipher, BodyKey, BodyUnreadable

MEMBER, HEADERS = "envelope_encrypted", "headers_encrypted"
_members = msgspec.json.Decoder(dict[str, Raw])
_text = msgspec.json.Decoder(str)
_encode = msgspec.json.Encoder().encode


class Decrypting:
    """Decrypts lines with ``keys``. ``unreadable``: how many bodies it could not decrypt, by reason."""

    def __init__(self, keys: Sequence[BodyKey]) -> None:
        self._cipher = BodyCipher(keys)
        self.unreadable: Counter[str] = Counter()

    def decrypted(self, line: bytes) -> bytes:
        """``line`` with its body and headers in clear; the same line where it has no encrypted body, or one that it
        cannot read, which is counted. Never raises. The other members keep their place and their spelling."""
        if MEMBER.encode() not in line:
            return line
        try:
            members = _members.decode(line)
            if MEMBER not in members:
                return line
            queue = _text.decode(members["queue"])
            body = opened(b64decode(_text.decode(members.pop(MEMBER)), validate=True), queue, self._cipher)
            if HEADERS in members:
                stored = b64decode(_text.decode(members.pop(HEADERS)), validate=True)
                members |= _members.decode(opened(stored, queue, self._cipher))
        except BodyUnreadable as error:
            self.unreadable[why(error)] += 1
            return line
        except (ValueError, KeyError, RecursionError, msgspec.MsgspecError):
            self.unreadable["the line is no record of a journal"] += 1
            return line
        envelope, other = embedded(body)
        if envelope is not UNSET:
            members["envelope"] = envelope
        else:
            members["envelope_base64"] = Raw(_encode(other))
        return _encode(members)
