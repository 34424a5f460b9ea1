"""Remembers the callers of verified tokens, beside those of the configuration."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from weakref import WeakSet

import msgspec
from msgspec import Struct

from babelgate.clock import Clock
from babelgate.errors import Unauthenticated
from babelgate.gateway.authorization import Caller
from babelgate.gateway.issuer_state import IssuerState
from babelgate.identities.errors import InvalidToken
from babelgate.identities.issuer import Issuer
from babelgate.identities.terms import Holders
from babelgate.identities.tokens import check_claims, check_header, is_signed_token, parse
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.cache import Cache

MAX_IDENTITIES = 10_000
"""Most remembered callers, some 10 MB. A token that was forgotten is verified again."""
_REFUSED_BYTES = 1024 * 1024
_REFUSED_ENTRY_BYTES = 512
_PURGE_SECONDS = 30.0
_MAX_TICKET_BYTES = 1_500
"""Longest ticket: with it a cookie has less than the 4,096 bytes that browsers keep."""

_throttled = LogThrottle(get_logger(__name__))


class _Ticket(Struct, frozen=True, array_like=True):
    """What another process needs to know a verified caller. ``terms``: the digest of those that it was verified by;
    ``key``: the id of the key; ``granted``: the places of the rules that matched."""

    terms: bytes
    key: str
    granted: tuple[int, ...]
    name: str
    ends_at: float


_opened = msgspec.msgpack.Decoder(_Ticket).decode


class Identities:
    """The callers by signed tokens of one process.

    ``callers``: of :class:`babelgate.http.auth.Auth`. A verified token is put there by its digest, and taken out when
    it ends, or when its key is gone from the keys of its issuer; then its streams and long polls end, too.
    """

    def __init__(
        self,
        issuers: Sequence[Issuer],
        callers: dict[str, Caller],
        clock: Clock,
        max_identities: int = MAX_IDENTITIES,
    ) -> None:
        self.issuers: Mapping[str, Issuer] = {}
        self._holders: Mapping[str, Holders] = {}
        self._callers = callers
        self._clock = clock
        self._max_identities = max_identities
        self._by_terms: Mapping[bytes, Issuer] = {}
        self._kept: OrderedDict[str, tuple[Caller, _Ticket]] = OrderedDict()
        """Those of ``callers`` that were put there here, the oldest first."""
        self._of_keys: dict[tuple[str, str], WeakSet[Caller]] = {}
        """By issuer and key, also the callers that were forgotten and still have a stream."""
        self._refused: Cache[str, str] = Cache(_REFUSED_BYTES, _REFUSED_ENTRY_BYTES)
        self._purging: asyncio.Task[None] | None = None
        self._closing: BackgroundTasks[None] = BackgroundTasks()
        self._use(issuers)

    def _use(self, issuers: Sequence[Issuer]) -> None:
        self.issuers = {each.terms.issuer: each for each in issuers}
        self._holders = {name: Holders(each.terms) for name, each in self.issuers.items()}
        self._by_terms = {each.terms.digest: each for each in issuers}
        for issuer in issuers:
            issuer.replaced = self._revoke

    def configure(self, issuers: Sequence[Issuer]) -> None:
        """Accept the tokens of ``issuers``, which are not started, from now on. One that is like before stays.

        The tokens of one that is gone are refused, and what their callers have under way ends. So it does for one with
        other terms, whose tokens are verified again with their next request.
        """
        before = self.issuers
        used = []
        for each in issuers:
            old = before.get(each.terms.issuer)
            if old is not None and old.is_like(each):
                used.append(old)
                continue
            if old is not None:
                each.adopt(old)
            each.start()
            used.append(each)
        self._use(used)
        for name, old in before.items():
            if self.issuers.get(name) is not old:
                self._revoke(name, frozenset())
                self._closing.start(old.close())
        # What was refused may be valid by other terms.
        self._refused.clear()

    def __len__(self) -> int:
        return len(self._kept)

    async def start(self) -> None:
        """Begin to read the keys of all issuers. Does not wait for them."""
        for issuer in self.issuers.values():
            issuer.start()
        self._purging = asyncio.get_running_loop().create_task(self._purge_sometimes())

    async def close(self) -> None:
        """Stop reading keys; idempotent."""
        if self._purging is not None:
            self._purging.cancel()
            await asyncio.gather(self._purging, return_exceptions=True)
        await asyncio.gather(*(issuer.close() for issuer in self.issuers.values()), *self._closing)

    async def learn(self, token: bytes, *, may_wait: bool = True) -> None:
        """Verify ``token``, unless its caller is known already, and remember its caller.

        Waits only where it may and the token names a key that is not known: see :meth:`Issuer.key`. Raises
        InvalidToken, IssuerUnavailable, and Unauthenticated for what does not have the form of a signed token.
        """
        digest = hashlib.sha256(token).hexdigest()
        known = self._callers.get(digest)
        if known is not None and not known.has_ended(self._clock()):
            return
        if not self.issuers or not is_signed_token(token):
            raise Unauthenticated
        if (reason := self._refused.get(digest)) is not None:
            raise InvalidToken(reason)
        try:
            await self._verify(token, digest, may_wait)
        except InvalidToken as error:
            if error.is_final:
                self._refused.keep(digest, error.detail)
            _throttled.warning("token refused", reason=error.detail)
            raise

    async def _verify(self, token: bytes, digest: str, may_wait: bool) -> None:
        parsed = parse(token)
        named = parsed.claims.get("iss")
        issuer = self.issuers.get(named) if isinstance(named, str) else None
        if issuer is None:
            raise InvalidToken("The issuer of the token is not one of this gateway.")
        terms = issuer.terms
        algorithm, kid = check_header(parsed.header, terms.algorithms)
        now = self._clock() / 1000
        # Before the signature, which costs ten times as much.
        ends_at = check_claims(parsed.claims, terms.audience, terms.leeway_seconds, now)
        key = await issuer.key(kid, algorithm, may_wait=may_wait)
        if self.issuers.get(terms.issuer) is not issuer:
            # The configuration was loaded again meanwhile.
            raise InvalidToken("The issuer of the token has changed.", is_final=False)
        if not key.verify(token):
            issuer.read_soon()
            raise InvalidToken("The signature of the token is not valid.")
        holders = self._holders[terms.issuer]
        ticket = _Ticket(terms.digest, key.id, holders.granted(parsed.claims), holders.name(parsed.claims), ends_at)
        self._keep(digest, issuer, ticket)

    def states(self) -> Mapping[str, IssuerState]:
        """The state of the keys of each issuer."""
        return {name: issuer.state for name, issuer in self.issuers.items()}

    def ticket(self, digest: str) -> bytes:
        """What :meth:`reopen` of any process with the same configuration takes for the token with this SHA-256. Empty
        for one that is not known, or has too many rights. Whoever keeps it must protect it from changes."""
        kept = self._kept.get(digest)
        ticket = b"" if kept is None else msgspec.msgpack.encode(kept[1])
        return ticket if len(ticket) <= _MAX_TICKET_BYTES else b""

    def reopen(self, digest: str, ticket: bytes) -> None:
        """Remember the caller of a token that another process verified, if that still holds."""
        found = _opened(ticket)
        issuer = self._by_terms.get(found.terms)
        if issuer is not None and issuer.has_key(found.key) and found.ends_at * 1000 > self._clock():
            self._keep(digest, issuer, found)

    def _keep(self, digest: str, issuer: Issuer, ticket: _Ticket) -> None:
        known = self._callers.get(digest)
        if known is not None and not known.has_ended(self._clock()):
            # Another request has brought it while this one waited.
            return
        caller = self._holders[issuer.terms.issuer].holder(ticket.granted, ticket.name, ticket.ends_at)
        self._of_keys.setdefault((issuer.terms.issuer, ticket.key), WeakSet()).add(caller)
        self._kept.pop(digest, None)
        while len(self._kept) >= self._max_identities:
            oldest, _ = self._kept.popitem(last=False)
            self._callers.pop(oldest, None)
        self._kept[digest] = caller, ticket
        self._callers[digest] = caller

    def _revoke(self, issuer: str, keys: frozenset[str]) -> None:
        """End the callers of keys that the issuer does not have. What was refused may be valid by a new key."""
        self._refused.clear()
        for name, key in list(self._of_keys):
            if name == issuer and key not in keys:
                for caller in tuple(self._of_keys.pop((name, key))):
                    caller.revoke()
        self._purge()

    async def _purge_sometimes(self) -> None:
        while True:
            await asyncio.sleep(_PURGE_SECONDS)
            self._purge()

    def _purge(self) -> None:
        """Take out the callers that have ended."""
        now = self._clock()
        for digest in [digest for digest, (caller, _) in self._kept.items() if caller.has_ended(now)]:
            del self._kept[digest]
            self._callers.pop(digest, None)
