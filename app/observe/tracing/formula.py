"""The trace that an envelope's ``trace_id`` gives, by the formula that every SDK of the contract uses. Pure.

``trace_id`` is any string. Both ids are big-endian integers and never zero.
"""

from __future__ import annotations

import hashlib


def trace_id_of(trace_id: str) -> int:
    """The 128-bit trace id: the 16 bytes of a UUID, hyphens or not; of any other text, the first 16 of its SHA-256."""
    digits = trace_id.replace("-", "")
    if len(digits) == 32:
        try:
            raw = bytes.fromhex(digits)
        except ValueError:
            raw = b""
        # It takes blanks between the bytes, which the contract does not.
        if len(raw) == 16 and (number := int.from_bytes(raw, "big")):
            return number
    return int.from_bytes(_digest(trace_id)[:16], "big") or 1


def parent_id_of(trace_id: str) -> int:
    """The 64-bit id of the span that stands for whoever began the trace, where no context travelled."""
    return int.from_bytes(_digest(f"babelqueue-span:{trace_id}")[:8], "big") or 1


def uuid_of(digits: str) -> str:
    """A trace id of 32 hexadecimal digits as the text of a UUID: what an envelope's ``trace_id`` is to be for a trace
    that there is already."""
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _digest(text: str) -> bytes:
    # A foreign body may hold an unpaired surrogate.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
