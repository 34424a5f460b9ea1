"""Makes, lists, rotates and revokes tokens, and keeps the callers of all processes up to date with them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from babelgate.clock import Clock, now_ms
from babelgate.errors import ConfigError, Forbidden, InvalidParameter, StateUnavailable
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.page_tokens import PageTerms
from babelgate.gateway.spreading import NobodyElse, OtherProcesses, spread_words
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks
from babelgate.tokens.errors import TokenNameTaken, UnknownToken
from babelgate.tokens.file import MadeToken, PageBounds, Rights, Stored, TokenFile, digest_of, merged
from babelgate.tokens.making import account_of, end_of, new_token, with_new
from babelgate.tokens.secret import digest, new_secret

FILE_SECONDS = 1.0
"""How often a process looks whether another one has changed the file, and whether a token has ended."""
PEERS_SECONDS = 2.0
"""How long a process waits before it compares its tokens with those of its peers again: one that did not answer may do
so later. The comparison takes up to 3 s more, while a peer is silent. So a revocation counts within 5 s."""
ROTATIONS = 3
"""How often a rotation is tried again, when another process changes the same token."""

log = get_logger(__name__)
_throttled = LogThrottle(log)


class TokenChange(Struct, frozen=True, kw_only=True):
    """What became of a call. ``token``: the version in force. ``secret``: the new secret, which no call returns
    later; empty for a revocation.

    ``kept``: whether ``state_dir`` has it, so that it outlives this process. ``told``: how many other processes know
    it. ``silent``: the peers that gave no answer, which learn it when they answer again. ``detail``: the same in
    sentences.
    """

    token: MadeToken
    secret: str
    kept: bool
    told: int
    silent: Sequence[str]
    detail: str


class Tokens:
    """The tokens that calls have made. A part of the application, which starts and closes it."""

    def __init__(
        self,
        callers: dict[str, Caller],
        file: TokenFile,
        *,
        max_ttl_seconds: float,
        names: Collection[str] = (),
        peers: OtherProcesses[MadeToken] | None = None,
        clock: Clock = now_ms,
    ) -> None:
        """``callers``: those of all credentials, by SHA-256, to which this adds and from which it removes. ``names``:
        of other callers, which no token may have: one that has such a name nevertheless, because the configuration
        has changed, lets no caller in. ``peers`` None: there are none."""
        self._callers = callers
        self._file = file
        self._max_ttl_seconds = max_ttl_seconds
        self._names = frozenset(names)
        self._clock = clock
        self._peers: OtherProcesses[MadeToken] = NobodyElse() if peers is None else peers
        self._stored: Stored = {}
        self._digest: str | None = None
        """Of what is stored; None: not computed yet."""
        self._own: dict[str, Caller] = {}
        """The callers of tokens that were made, by SHA-256."""
        self._next_end = 0
        self._tasks: BackgroundTasks[None] = BackgroundTasks()

    async def start(self) -> None:
        """Learn what the file and the peers know, then keep up with them. Takes 3 s at most.

        Raises ConfigError for a file that cannot be read: it may have a revocation.
        """
        try:
            self._adopt((await asyncio.to_thread(self._file.read)).values(), "state_dir")
        except StateUnavailable as error:
            raise ConfigError(key="state_dir", reason=f"the tokens cannot be read: {error.reason}") from None
        await self._compare()
        self._tasks.start(self._watch_file())
        self._tasks.start(self._watch_peers())

    def reserve_names(self, names: Collection[str]) -> None:
        """The names of other callers are these from now on; tokens with one of them are not valid."""
        self._names = frozenset(names)
        self._apply()

    async def close(self) -> None:
        """Stop keeping up; idempotent."""
        await self._tasks.cancel()
        await self._peers.close()

    def listed(self, caller: Caller) -> list[MadeToken]:
        """The valid tokens that the caller may revoke, by name. Raises Forbidden without the right to manage."""
        caller.require_anywhere(Right.MANAGE)
        now = self._clock()
        found = (each for each in self._stored.values() if each.is_valid(now) and _manages(caller, each.granted))
        return sorted(found, key=lambda each: (each.name, each.id))

    async def create(
        self,
        caller: Caller,
        name: str,
        rights: Rights,
        *,
        ttl_seconds: float | None = None,
        ends_at: int | None = None,
        page: PageBounds | None = None,
    ) -> TokenChange:
        """Make a token; return once all peers know it, or after 3 s. It is valid here and in ``state_dir`` by then.

        ``ends_at``: Unix ms. ``page``: of a token in a web page, from :func:`page_bounds`.

        Raises InvalidParameter without exactly one end, or for one that is not allowed;
        Forbidden, TokenNameTaken, TooManyTokens, StateUnavailable.
        """
        _check_grant(caller, rights)
        now = self._clock()
        end = end_of(now, self._max_ttl_seconds, ttl_seconds, ends_at)
        if end is None:
            raise InvalidParameter(
                name="ttl_seconds", reason="a token needs ttl_seconds or ends_at", pointer="/ttl_seconds"
            )
        if name in self._names:
            raise TokenNameTaken(name=name)
        account = account_of(caller, self._stored, now)
        made, secret = new_token(name, rights, caller.name, now, end, account, page)
        await self._write(partial(with_new, token=made, now=now))
        return await self._spread(made, secret, kept=True)

    async def rotate(
        self,
        caller: Caller,
        token_id: str,
        overlap_seconds: float,
        *,
        ttl_seconds: float | None = None,
        ends_at: int | None = None,
    ) -> TokenChange:
        """Give the token a new secret, and maybe another end; the old secret stays valid for ``overlap_seconds``, and
        the one before it no more. Raises as :meth:`create`, UnknownToken also for one that is revoked meanwhile, and
        StateUnavailable if other processes keep changing it."""
        found = self._managed(caller, token_id)
        _check_grant(caller, found.granted)
        if found.name in self._names:
            raise TokenNameTaken(name=found.name)
        now = self._clock()
        end = end_of(now, self._max_ttl_seconds, ttl_seconds, ends_at)
        secret = new_secret()

        def change(stored: Stored) -> Stored:
            # Memory has a newer one than the file while the file cannot be written.
            last = max(stored.get(token_id, found), self._stored.get(token_id, found), key=MadeToken.rank)
            if not last.is_valid(now):
                raise UnknownToken(id=token_id)
            new_end = last.ends_at if end is None else end
            # It never lives longer than it would have, nor than the token.
            old_ends_at = min(now + int(overlap_seconds * 1_000), last.ends_at, new_end)
            new = self._version(
                last,
                caller,
                ends_at=new_end,
                known_until=max(last.known_until, new_end),
                sha256=digest(secret),
                old_sha256=last.sha256 if overlap_seconds else "",
                old_ends_at=old_ends_at if overlap_seconds else 0,
            )
            return merged(stored, [new], now)

        for _ in range(ROTATIONS):
            await self._write(change)
            if self._opens(token_id, secret):
                outcome = await self._spread(self._stored[token_id], secret, kept=True)
                if self._opens(token_id, secret):
                    return outcome
        raise StateUnavailable(reason=f"other gateways change the token {token_id} at the same time")

    async def revoke(self, caller: Caller, token_id: str) -> TokenChange:
        """Make the token invalid; return once all peers know it, or after 3 s. It is invalid here at once, also when
        ``state_dir`` cannot be written. Raises Forbidden, UnknownToken."""
        found = self._managed(caller, token_id)
        revoked = self._version(
            found, caller, revoked=True, rights={}, page=None, sha256="", old_sha256="", old_ends_at=0
        )
        self._adopt([revoked], "call")
        return await self._spread(revoked, "", kept=await self._keep())

    async def learn(self, versions: Iterable[MadeToken]) -> None:
        """Adopt what a peer knows, and keep it."""
        if self._adopt(versions, "peer"):
            await self._keep()

    def versions(self) -> list[MadeToken]:
        """All that this process knows."""
        return list(self._stored.values())

    def digest(self) -> str:
        """The same for all processes that know the same."""
        if self._digest is None:
            self._digest = digest_of(self._stored)
        return self._digest

    def _managed(self, caller: Caller, token_id: str) -> MadeToken:
        """The valid token of this id. One that the caller may not see is unknown to it."""
        caller.require_anywhere(Right.MANAGE)
        found = self._stored.get(token_id)
        if found is None or not found.is_valid(self._clock()) or not _manages(caller, found.granted):
            raise UnknownToken(id=token_id)
        return found

    def _opens(self, token_id: str, secret: str) -> bool:
        """Whether the secret is valid; a version of another process may have counted against it. Raises UnknownToken
        once the token is not valid."""
        found = self._stored.get(token_id)
        if found is None or not found.is_valid(self._clock()):
            raise UnknownToken(id=token_id)
        return digest(secret) in {sha256 for sha256, _ in found.ends()}

    def _version(self, last: MadeToken, caller: Caller, **members: object) -> MadeToken:
        """A change of ``last``, which is newer than it whatever the clock of its process was."""
        at = max(self._clock(), last.at + 1)
        return replace(last, at=at, change=secrets.token_hex(4), by=caller.name, **members)

    async def _write(self, change: Callable[[Stored], Stored]) -> None:
        """Change the file first, because a token that only this process knows would end with it."""
        self._adopt((await asyncio.to_thread(self._file.change, change)).values(), "call")

    async def _spread(self, token: MadeToken, secret: str, kept: bool) -> TokenChange:
        heard = await self._peers.exchange([token], self.digest())
        await self.learn(heard.changes)
        return TokenChange(
            token=token,
            secret=secret,
            kept=kept,
            told=heard.told,
            silent=heard.silent,
            detail=spread_words(kept, heard.told, heard.silent, self._peers.has_addresses),
        )

    def _adopt(self, versions: Iterable[MadeToken], source: str) -> bool:
        """Apply the versions that count; whether there are any. ``source``: where they come from, for the log."""
        found = merged(self._stored, versions, self._clock())
        if found is self._stored:
            return False
        before, self._stored, self._digest = self._stored, found, None
        for token_id, each in found.items():
            if each is not (last := before.get(token_id)):
                _log(each, last, source)
                if each.name in self._names and each.is_valid(self._clock()):
                    log.warning("token ignored: another caller has its name", token=each.id, name=each.name)
        self._apply()
        return True

    def _apply(self) -> None:
        """Bring the callers up to date, and note when the next secret ends."""
        now = self._clock()
        valid: dict[str, tuple[MadeToken, int]] = {}
        for token in self._stored.values():
            if token.name in self._names:
                continue
            valid.update((sha256, (token, end)) for sha256, end in token.ends() if now < end)
        for sha256 in self._own.keys() - valid.keys():
            # What the caller has under way ends, too.
            self._own.pop(sha256).revoke()
            del self._callers[sha256]
        for sha256, (token, end) in valid.items():
            caller = self._own.get(sha256)
            if caller is not None:
                caller.ends_at = end / 1_000
            elif sha256 not in self._callers:
                rights = {queue: frozenset(granted) for queue, granted in token.granted.items()}
                caller = Caller(token.name, rights, self._page(token), ends_at=end / 1_000)
                self._callers[sha256] = self._own[sha256] = caller
        self._next_end = min((end for _, end in valid.values()), default=0)

    def _page(self, token: MadeToken) -> PageTerms | None:
        """The bounds of a token in a web page, which its secrets share."""
        page = token.page
        if page is None:
            return None
        known = (each.page for sha256, _ in token.ends() if (each := self._own.get(sha256)) is not None)
        return next(known, None) or PageTerms(page.origins, page.per_minute, page.max_message_bytes)

    async def _keep(self) -> bool:
        """Write what is known to the file, and adopt what it has; False if that failed, which is logged."""
        known, now = self.versions(), self._clock()
        try:
            stored = await asyncio.to_thread(self._file.change, lambda stored: merged(stored, known, now))
        except StateUnavailable as error:
            _throttled.warning("tokens not kept", error=error)
            return False
        self._adopt(stored.values(), "state_dir")
        return True

    async def _watch_file(self) -> None:
        while True:
            await asyncio.sleep(FILE_SECONDS)
            try:
                if (news := await asyncio.to_thread(self._file.news)) is not None:
                    self._adopt(news.values(), "state_dir")
                if self._next_end and self._next_end <= self._clock():
                    self._apply()
            except StateUnavailable as error:
                _throttled.warning("tokens not read", error=error)
            except Exception:
                log.exception("tokens not read; tried again later")

    async def _watch_peers(self) -> None:
        while True:
            await asyncio.sleep(PEERS_SECONDS)
            try:
                await self._compare()
            except Exception:
                log.exception("tokens not compared with those of peers; tried again later")

    async def _compare(self) -> None:
        heard = await self._peers.exchange((), self.digest())
        self._adopt(heard.changes, "peer")
        if self._stored:
            # Also without news: the file may have refused the last ones, on a full disk for example.
            await self._keep()


def _check_grant(caller: Caller, rights: Mapping[str, Collection[Right]]) -> None:
    """Raise Forbidden unless the caller manages each queue pattern, and has each right that is granted on it. Who
    consumes and manages has what observers have."""
    for queue, granted in rights.items():
        for right in (Right.MANAGE, *granted):
            if not caller.may(right, queue):
                reason = f"This needs the right {right.value!r} on all queues of {queue!r}, which you do not have."
                raise Forbidden(reason=reason)


def _manages(caller: Caller, rights: Mapping[str, object]) -> bool:
    # Who manages all queues, if a token has none: that of a page has lost them where an older gateway wrote the file.
    return all(Right.MANAGE in caller.rights(queue) for queue in rights or ("*",))


def _log(token: MadeToken, last: MadeToken | None, source: str) -> None:
    if token.revoked:
        # A process that learns a token with its revocation has never let it in.
        if last is not None and not last.revoked:
            log.info("token revoked", token=token.id, name=token.name, caller=token.by, source=source)
    else:
        what = "token made" if last is None else "token rotated"
        log.info(what, token=token.id, name=token.name, caller=token.by, ends_at=token.ends_at, source=source)
