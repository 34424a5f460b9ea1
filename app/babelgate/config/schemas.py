"""The section of the configuration about the schemas of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from babelgate.config.section import Section
from babelgate.urls import refusal_of


def _url(value: str) -> str:
    if (refused := refusal_of(value, may_have_query=True)) is not None:
        raise ValueError(refused)
    return value


class SchemaSettings(Section):
    """Where the schemas of jobs are; see docs/schemas.md."""

    directory: Path | None = Field(
        default=None,
        description="Directory with a [JSON Schema](schemas.md) for each job, read at the start and at each "
        "[reload](reload.md). None: no schemas.",
    )
    url: Annotated[str, Field(max_length=2_000), AfterValidator(_url)] | None = Field(
        default=None,
        description="Instead of `directory`: the address of a [bundle of schemas](schemas.md#a-url), by HTTPS.",
    )
    refresh_seconds: float = Field(
        default=60, ge=1, le=86_400, description="Seconds after which the bundle is read again."
    )
    ca_file: Path | None = Field(
        default=None, description="Certificates, PEM, that verify that of `url`. None: those of this machine."
    )
    bearer_file: Path | None = Field(default=None, description="A file with a token that is sent to `url`.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.directory is not None and self.url is not None:
            raise ValueError("directory and url exclude each other")
        return self

    @property
    def is_configured(self) -> bool:
        """Whether there are schemas."""
        return self.directory is not None or self.url is not None
