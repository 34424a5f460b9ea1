"""The section of the configuration about the schemas of jobs."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from babelgate.config.section import Section


class SchemaSettings(Section):
    """Where the schemas of jobs are; see docs/schemas.md."""

    directory: Path | None = Field(
        default=None,
        description="Directory with a [JSON Schema](schemas.md) for each job, read at the start and at each "
        "[reload](reload.md). None: no schemas.",
    )
