"""Which configuration a process serves, and what became of the attempts to load another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

LOAD_OUTCOMES = ("applied", "refused")


class Refusal(Struct, frozen=True):
    """Why a configuration was refused. ``at``: Unix ms. ``problems``: each key and its reason, the first of all."""

    at: int
    cause: str
    problems: Sequence[tuple[str, str]]


class LoadedConfiguration(Struct):
    """``version`` counts from 1, the start. ``loaded_at``: Unix ms. ``digest``: the same for all processes with the
    same configuration and token keys. ``shown``: the configuration, secrets masked. ``changed``: the keys of the last
    change. ``refusal``: the last one, None once a configuration was applied after it."""

    loaded_at: int
    digest: str
    shown: Mapping[str, Any]
    version: int = 1
    changed: Sequence[str] = ()
    refusal: Refusal | None = None
    counts: Counter[str] = field(default_factory=Counter)
