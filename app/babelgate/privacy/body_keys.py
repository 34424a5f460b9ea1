"""Reads keys of bodies for programs that have no configuration, and opens the bodies of the journal with them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from babelgate.errors import ConfigError
from babelgate.privacy.ciphers import BodyCipher, BodyKey, BodyUnreadable, journal_context

VARIABLE = "BABELGATE_BODY_KEYS"
"""The environment variable of the gateway, whose value is the same JSON."""


class _Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As ``body_keys`` of the configuration."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,32}\Z")]
    secret: Annotated[str, msgspec.Meta(min_length=32)]


_keys = msgspec.json.Decoder(list[_Key])
_carried = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_body_keys(file: Path | None, environ: Mapping[str, str] = os.environ) -> list[BodyKey]:
    """The keys in ``file``, else those of the environment; none where neither is given.

    They are a JSON list of objects with ``id`` and ``secret``. Raises ConfigError, which quotes nothing of it.
    """
    name = VARIABLE
    try:
        if file is not None:
            name, text = str(file), file.read_text()
        else:
            text = environ.get(VARIABLE, "")
        if not text.strip():
            return []
        found = _keys.decode(text)
    except OSError as error:
        raise ConfigError(key=name, reason=error.strerror or str(error)) from None
    except (ValueError, msgspec.MsgspecError):
        reason = (
            'must be a JSON list, such as [{"id": "2026", "secret": "…"}], with ids of 1 to 32 of A-Z a-z 0-9 . _ - '
            "and secrets of at least 32 characters"
        )
        raise ConfigError(key=name, reason=reason) from None
    if len({key.id for key in found}) < len(found):
        raise ConfigError(key=name, reason="two keys have the same id")
    return [BodyKey(key.id, key.secret.encode()) for key in found]


def opened(encrypted: bytes, queue: str, cipher: BodyCipher) -> bytes:
    """The body that a record of ``queue`` has in ``envelope_encrypted``. Raises BodyUnreadable."""
    return cipher.decrypted(encrypted, journal_context(queue), "journal")


def opened_headers(encrypted: bytes, queue: str, cipher: BodyCipher) -> tuple[str | None, str | None]:
    """What a record of ``queue`` has in ``headers_encrypted``: the native headers as a JSON object, and the ordering
    key; None for what the message lacks. Raises BodyUnreadable."""
    found = _carried.decode(cipher.decrypted(encrypted, journal_context(queue), "journal"))
    headers = found.get("headers")
    return None if headers is None else bytes(headers).decode(), _text(found.get("ordering_key"))


def _text(value: msgspec.Raw | None) -> str | None:
    return None if value is None else msgspec.json.decode(value, type=str)


def why(error: BodyUnreadable) -> str:
    """Why a body of the journal cannot be read."""
    return str(error.facts["reason"])
