"""What a token of an issuer must be, and what its claims grant."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from babelgate.gateway.authorization import Caller, Right
from babelgate.identities.errors import InvalidToken
from babelgate.runtime.cache import Recent

MAX_NAME = 256
"""Longest name of a caller, without its prefix."""
_SPACED = frozenset({"scope", "scp"})
"""Claims whose text is a list with spaces: https://www.rfc-editor.org/rfc/rfc8693#section-4.2"""
_MOST_HOLDERS = 256
"""Combinations of rules whose rights are kept, to be shared by the callers that have them."""


class RightsRule(Struct, frozen=True):
    """What a token is granted whose claim has one of ``values``. ``claim``: the names that lead to it."""

    claim: tuple[str, ...]
    values: frozenset[str]
    grant: Mapping[str, frozenset[Right]]

    def matches(self, claims: Mapping[str, Any]) -> bool:
        """Whether the claim has one of the values: it is the text, or a member of the list."""
        found = claim_of(claims, self.claim)
        if isinstance(found, str):
            found = found.split(" ") if self.claim[-1] in _SPACED else [found]
        if not isinstance(found, list):
            return False
        return any(isinstance(each, str) and each in self.values for each in found)


class IssuerTerms(Struct, frozen=True):
    """``issuer``: the claim ``iss``, exactly; ``audience``: one of these must be in ``aud``. ``leeway_seconds``: by
    how much clocks may differ. ``name_claim``: the names that lead to the name of the caller, which follows
    ``name_prefix``. ``refresh_seconds``: time between two reads of the keys."""

    issuer: str
    audience: frozenset[str]
    algorithms: tuple[str, ...]
    rules: Sequence[RightsRule]
    name_prefix: str
    name_claim: tuple[str, ...] = ("sub",)
    leeway_seconds: float = 30.0
    refresh_seconds: float = 300.0

    @property
    def digest(self) -> bytes:
        """The same in all processes with the same terms."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).digest()[:16]


def claim_of(claims: Mapping[str, Any], names: Sequence[str]) -> Any:
    """What ``names`` lead to, from object to object; None if there is nothing."""
    found: Any = claims
    for name in names:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


class Holders:
    """Makes the callers of one issuer. Those with the same rights share them."""

    def __init__(self, terms: IssuerTerms) -> None:
        self._terms = terms
        self._holders: Recent[tuple[int, ...], Caller] = Recent(_MOST_HOLDERS)

    def granted(self, claims: Mapping[str, Any]) -> tuple[int, ...]:
        """The places of the rules that ``claims`` match."""
        return tuple(index for index, rule in enumerate(self._terms.rules) if rule.matches(claims))

    def holder(self, granted: tuple[int, ...], name: str, ends_at: float) -> Caller:
        """The caller of this name with the rights of the rules at ``granted``."""
        return self._holders.obtain(granted, partial(self._holder, granted)).named(name, ends_at)

    def _holder(self, granted: tuple[int, ...]) -> Caller:
        rights: dict[str, frozenset[Right]] = {}
        for index in granted:
            for pattern, given in self._terms.rules[index].grant.items():
                rights[pattern] = rights.get(pattern, frozenset()) | given
        return Caller("", rights)

    def name(self, claims: Mapping[str, Any]) -> str:
        """The name of the caller with these claims. Raises InvalidToken without a usable one."""
        name = claim_of(claims, self._terms.name_claim)
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
            raise InvalidToken("The claim of the token that names its holder is missing, or not a usable name.")
        return self._terms.name_prefix + name
