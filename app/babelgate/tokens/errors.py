"""The errors of operations on tokens."""

from __future__ import annotations

from babelgate.errors import BabelgateError


class TokensDisabled(BabelgateError):
    """This gateway makes no tokens: {reason}."""

    code = "tokens_disabled"


class UnknownToken(BabelgateError):
    """This gateway has made no token {id} that is valid. It may have ended, or was revoked."""

    code = "unknown_token"


class TokenNameTaken(BabelgateError):
    """A valid token, or a caller of the configuration, has the name {name} already. Use another name."""

    code = "token_name_taken"


class TooManyTokens(BabelgateError):
    """This gateway keeps {limit} {kind} already. {advice}"""

    code = "too_many_tokens"
