"""The errors of signed tokens."""

from __future__ import annotations

from typing import Any

from babelgate.errors import BabelgateError


class InvalidToken(BabelgateError):
    """{reason}"""

    code = "invalid_token"

    def __init__(self, reason: str, *, is_final: bool = True, **facts: Any) -> None:
        """``reason``: a sentence in ASCII without quotes, which quotes nothing of the token or the configuration.
        ``is_final``: whether the same token cannot become valid."""
        super().__init__(reason=reason, **facts)
        self.is_final = is_final


class IssuerUnavailable(BabelgateError):
    """The keys of the token's issuer cannot be read now, so the token cannot be verified."""

    code = "issuer_unavailable"
    retryable = True
