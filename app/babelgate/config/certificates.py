"""The section about client certificates, by whose names callers are known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field

from babelgate.config.rate_limits import RateSettings
from babelgate.config.section import QueuePattern, Section
from babelgate.gateway.authorization import Right
from babelgate.identities.certificates import KINDS, MAX_NAME, pattern_of


def _san(value: str) -> str:
    pattern_of(value)
    return value


class CertificateSettings(Section):
    """Whom client certificates with an alternative name are of; see docs/identities.md."""

    san: Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_san)] = Field(
        description="`DNS:…`, `URI:spiffe://…` or `email:…@…`. `*`: a DNS label, a segment, or all before `@`."
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=120,
        description="The name of the certificate's holder, for logs and limits. None: the alternative name, with its "
        "kind.",
    )
    rights: dict[QueuePattern, tuple[Right, ...]] = Field(
        description="For each queue pattern: `send`, `listen`, `manage`, `observe`."
    )
    limits: RateSettings | None = Field(
        default=None,
        description="The [limits](limits.md) of this identity; `{}`: none. None: those of `rate_limits.identity`.",
    )


def check_names(names: Iterable[str]) -> None:
    """Raise ValueError for a name, or a beginning of names, that a certificate without a name has. ``names``: of
    others."""
    kinds = tuple(f"{kind}:" for kind in KINDS)
    for name in names:
        if name.startswith(kinds):
            raise ValueError(
                f"names of others cannot begin with {name.partition(':')[0]}:, as those of certificates do"
            )
