"""The text of a token: a prefix, a random part and a checksum, so that scanners of secrets find it."""

from __future__ import annotations

import hashlib
import secrets
import string
import zlib

PREFIX = "bg_"
_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_RANDOM_CHARACTERS = 30
"""178 bits."""
_CHECKSUM_CHARACTERS = 6
"""Enough for 32 bits in base 62."""


def new_secret() -> str:
    """A new token: ``bg_``, 30 random letters and digits, and 6 of their checksum.

    The form of GitHub's tokens: https://github.blog/engineering/behind-githubs-new-authentication-token-formats/
    """
    random = "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_CHARACTERS))
    return PREFIX + random + checksum(random)


def checksum(random: str) -> str:
    """The CRC-32 of the random part, in base 62 (``0-9A-Za-z``), with leading zeros."""
    rest, text = zlib.crc32(random.encode("ascii")), ""
    for _ in range(_CHECKSUM_CHARACTERS):
        rest, digit = divmod(rest, len(_ALPHABET))
        text = _ALPHABET[digit] + text
    return text


def digest(secret: str) -> str:
    """What is kept of a token: its SHA-256 in lower-case hexadecimal."""
    return hashlib.sha256(secret.encode("ascii")).hexdigest()
