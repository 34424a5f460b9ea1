"""The section about tokens that the gateway makes."""

from __future__ import annotations

from pydantic import Field

from babelgate.config.section import Seconds, Section


class MadeTokenSettings(Section):
    """Tokens that calls make, rotate and revoke; see docs/tokens.md."""

    enabled: bool = Field(
        default=True, description="Whether holders of `manage` can make tokens. `false`: those that were made are 401."
    )
    max_ttl_seconds: Seconds = Field(
        default=31_536_000, le=315_360_000, description="How far the end of a token may be away when it is made."
    )
