"""The base of all sections of the configuration, and what several of them have in common."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?|\[[0-9a-f:.]+\]")

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Delay = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def commas(value: object) -> object:
    """Split a text at its commas; return any other value unchanged."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class Section(BaseModel):
    """A mapping of the configuration. Unknown keys are errors."""

    # A rejected value may be a secret, so pydantic must not quote it.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, coerce_numbers_to_str=True)
