"""The section of the configuration about bodies that are encrypted at rest."""

from __future__ import annotations

from pydantic import Field, SecretStr

from babelgate.config.section import Section


class BodyKeySettings(Section):
    """A key that encrypts bodies at rest; see docs/privacy.md."""

    id: str = Field(
        pattern="^[A-Za-z0-9._-]{1,32}$", description="The name of the key, which is part of each encrypted body."
    )
    secret: SecretStr = Field(min_length=32, description="The secret: at least 32 characters, used as UTF-8 bytes.")
