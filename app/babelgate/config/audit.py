"""The section of the configuration that describes the audit trail."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from babelgate.config.section import Section


class AuditSettings(Section):
    """The audit trail; see docs/audit.md."""

    directory: Path | None = Field(
        default=None, description="Directory of the trail, on a local disk. None: no audit trail."
    )
    node: str | None = Field(
        default=None,
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="The name of this gateway in its records and files. None: the host name.",
    )
    file_bytes: int = Field(
        default=16_777_216, ge=4_096, le=1_073_741_824, description="Size from which a new file is begun."
    )
    max_bytes: int | None = Field(
        default=1_073_741_824,
        ge=65_536,
        description="Most bytes of the files of one process; the oldest are removed, and a record says so. None: they "
        "are kept.",
    )
    retention_days: float | None = Field(
        default=None,
        gt=0,
        le=36_500,
        allow_inf_nan=False,
        description="Age from which files are removed when a new one is begun. None: they are kept.",
    )
    refusals: int = Field(
        default=30,
        ge=1,
        le=100_000,
        description="Most refusals recorded in ten seconds, of each caller, and of all without a token together. "
        "Others are counted.",
    )
    when_full: Literal["refuse", "continue"] = Field(
        default="refuse",
        description="While the trail cannot be written. `refuse`: changes are 503 `audit_unavailable`; `continue`: "
        "records wait in memory.",
    )
