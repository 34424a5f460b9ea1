"""The section of the configuration about the pages of the console."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from babelgate.config.section import Section

_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*:/")
"""The beginning of a URL; ``./`` before it makes it a path."""


def _local(value: object) -> object:
    """Refuse a URL, which would be the path of a file that never exists, and an empty text. Raises ValueError."""
    if isinstance(value, str) and not value.strip():
        raise ValueError("must name a file: leave the key out for no report")
    if isinstance(value, str) and _URL.match(value):
        raise ValueError(
            "must be a local path, not a URL: have `babelgate pipeline report` write to a local folder, or leave the "
            "key out and read the report from its bucket"
        )
    return value


class ConsoleSettings(Section):
    """The console; see docs/console.md."""

    enabled: bool | None = Field(
        default=None,
        description="Whether `/console` is served. None: where credentials are configured, and on a loopback address.",
    )
    read_only: bool = Field(default=False, description="Whether users of the console can look only.")
    trace_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s{}]*(\{trace_id\}[^\s{}]*)+$",
        max_length=2_000,
        description="Links of the console to traces: `https://grafana.example/trace/{trace_id}` (hexadecimal). None: "
        "none.",
    )
    report: Annotated[Path, BeforeValidator(_local)] | None = Field(
        default=None,
        description="Report of the pipeline that the console shows: a local file, no URL. None: none.",
    )
