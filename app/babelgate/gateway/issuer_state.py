"""What operators see of an issuer of tokens."""

from __future__ import annotations

from msgspec import Struct


class IssuerState(Struct, frozen=True):
    """The keys of an issuer. ``failure``: why they could not be read at the last try; None: they were, or are read for
    the first time. ``read_at``: when they were read last, Unix ms; None: never. ``keys``: how many are usable."""

    failure: str | None
    read_at: int | None
    keys: int
