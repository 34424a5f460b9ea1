"""The section about loading the configuration again."""

from __future__ import annotations

from pydantic import Field

from babelgate.config.section import Section


class ReloadSettings(Section):
    """When the configuration is loaded again by itself; see docs/reload.md."""

    watch: bool = Field(
        default=False,
        description="Whether the file of `--config` and the files of its `${file:…}` are [loaded again](reload.md) "
        "when they change. SIGHUP always does.",
    )
