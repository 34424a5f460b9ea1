"""The base of all sections of the configuration, and what several of them have in common."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?|\[[0-9a-f:.]+\]")

_UNREAL = re.compile(r"[^*A-Za-z0-9._-]")


def _queue_pattern(value: str) -> str:
    if not value or _UNREAL.search(value) or len(value) > 120:
        raise ValueError("a queue name or pattern must be 1 to 120 of the characters A-Z a-z 0-9 . _ - and *")
    if value.endswith(".dlq"):
        raise ValueError("a dead-letter queue uses the route of its parent queue and cannot have its own")
    return value


QueuePattern = Annotated[str, AfterValidator(_queue_pattern)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Delay = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def commas(value: object) -> object:
    """Split a text at its commas; return any other value unchanged."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class Section(BaseModel):
    """A mapping of the configuration. Unknown keys are errors."""

    # A rejected value may be a secret, so pydantic must not quote it.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, coerce_numbers_to_str=True)
