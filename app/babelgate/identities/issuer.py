"""The keys of one issuer, kept fresh in the background."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable

from babelgate.clock import Clock, now_ms
from babelgate.gateway.issuer_state import IssuerState
from babelgate.identities.errors import InvalidToken, IssuerUnavailable
from babelgate.identities.fetching import FetchFailed
from babelgate.identities.keys import KeySet, SigningKey, parse_keys
from babelgate.identities.terms import IssuerTerms
from babelgate.observe.logs import get_logger
from babelgate.runtime.backoff import Backoff
from babelgate.runtime.cache import Cache

LEAST_PAUSE_SECONDS = 5.0
"""Time between two reads of the keys that tokens cause, whatever keys they name."""
WAIT_SECONDS = 12.0
"""How long a request waits for the keys: the pause, and the time for a document with its discovery, nearly always."""
MAX_WAITING = 256
"""Most requests that wait for the keys of an issuer."""
MISSING_SECONDS = 30.0
"""How long a name of a key that the issuer does not have is remembered: tokens with it are refused without waiting."""
_MISSING_BYTES = 512 * 1024
_MISSING_ENTRY_BYTES = 1_100
_UNFIT = "The key that the token names cannot verify its signature."
_NOT_ONE = "The token names no key, and its issuer does not have exactly one for its algorithm."
_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 1.0, 30.0

log = get_logger(__name__)

Fetch = Callable[[], Awaitable[bytes]]
"""Returns the JWK Set. Raises FetchFailed."""
Replaced = Callable[[str, frozenset[str]], None]
"""Called with the issuer and the ids of all its keys, when they are others than before."""


class Issuer:
    """``failure``: why the keys could not be read the last time; None if they were. ``read_at``: when they were read
    last, Unix ms; None: never."""

    def __init__(
        self,
        terms: IssuerTerms,
        fetch: Fetch,
        least_pause_seconds: float = LEAST_PAUSE_SECONDS,
        source: Hashable = None,
        clock: Clock = now_ms,
    ) -> None:
        """``source``: from where ``fetch`` reads."""
        self.terms = terms
        self.source = source
        self.failure: str | None = None
        self.read_at: int | None = None
        self._clock = clock
        self.replaced: Replaced = lambda issuer, ids: None
        self._fetch = fetch
        self._least_pause_seconds = least_pause_seconds
        self._keys: KeySet | None = None
        self._missing: Cache[str, float] = Cache(_MISSING_BYTES, _MISSING_ENTRY_BYTES)
        self._waiting: list[asyncio.Future[None]] = []
        self._wanted = asyncio.Event()
        self._next_at = -math.inf
        """Loop time of the next read while reads fail."""
        self._backoff = Backoff(_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS)
        self._task: asyncio.Task[None] | None = None

    def is_like(self, other: Issuer) -> bool:
        """Whether both verify the same tokens, by keys of the same source, and grant the same."""
        return (self.terms.digest, self.terms.refresh_seconds, self.source) == (
            other.terms.digest,
            other.terms.refresh_seconds,
            other.source,
        )

    def adopt(self, before: Issuer) -> None:
        """Know the keys that ``before`` has read, if they are from the same source: an issuer that is down now stays
        usable."""
        if self.source == before.source and self.terms.algorithms == before.terms.algorithms:
            self._keys, self.read_at = before._keys, before.read_at

    def start(self) -> None:
        """Begin to read the keys; needs a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._refresh())

    async def close(self) -> None:
        """Stop reading, and refuse what waits; idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._release(self._waiting)

    @property
    def state(self) -> IssuerState:
        """What operators see of the keys."""
        keys = self._keys
        return IssuerState(self.failure, self.read_at, 0 if keys is None else len(keys.ids))

    async def key(self, kid: str | None, algorithm: str, *, may_wait: bool = True) -> SigningKey:
        """The key that a token names. For an unknown one the keys are read again, and the call waits for that.

        Raises InvalidToken when there is no such key, IssuerUnavailable when this is not known within WAIT_SECONDS, or
        without waiting if it must not wait.
        """
        if not self._has(kid):
            await self._read_again(kid, may_wait)
        keys = self._keys
        if keys is None:
            raise IssuerUnavailable
        if not self._has(kid):
            if kid is not None:
                self._missing.keep(kid, asyncio.get_running_loop().time())
            raise _unknown()
        found = keys.find(kid, algorithm)
        if found is None:
            self.read_soon()
            raise InvalidToken(_UNFIT if kid is not None else _NOT_ONE, is_final=False)
        return found

    def read_soon(self) -> None:
        """Read the keys again after the pause, because they do not fit a token: a key may have been replaced by another
        without a new name. Nothing waits for it, and an issuer that is down is spared."""
        self._wanted.set()

    def has_key(self, id: str) -> bool:
        """Whether the issuer has the key with this id, or its keys are not known yet."""
        return self._keys is None or id in self._keys.ids

    def _has(self, kid: str | None) -> bool:
        return self._keys is not None and self._keys.has(kid)

    async def _read_again(self, kid: str | None, may_wait: bool) -> None:
        """Wait for a read of the keys that begins from now on."""
        loop = asyncio.get_running_loop()
        missing = self._missing.get(kid) if kid is not None else None
        if missing is not None and loop.time() - missing < MISSING_SECONDS:
            raise _unknown()
        pause = self._next_at - loop.time()
        if len(self._waiting) >= MAX_WAITING or (self.failure is not None and pause > WAIT_SECONDS):
            raise IssuerUnavailable(retry_after=math.ceil(max(pause, 1)))
        if not may_wait:
            self.read_soon()
            raise IssuerUnavailable
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        self._wanted.set()
        await asyncio.wait([waiter], timeout=WAIT_SECONDS)
        if not waiter.done() or self.failure is not None:
            waiter.cancel()
            raise IssuerUnavailable

    async def _refresh(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            waiting, self._waiting = self._waiting, []
            self._wanted.clear()
            is_first = self._keys is None
            await self._read()
            if is_first:
                # No key was known: what has come meanwhile did not miss one of an older set.
                waiting += self._waiting
                self._waiting = []
                self._wanted.clear()
            self._release(waiting)
            read_at = loop.time()
            if self.failure is not None:
                # Requests do not make it shorter: an issuer that is down is spared.
                pause = self._backoff.failed()
                self._next_at = read_at + pause
                await asyncio.sleep(pause)
                continue
            self._backoff.succeeded()
            try:
                await asyncio.wait_for(self._wanted.wait(), self.terms.refresh_seconds)
                await asyncio.sleep(max(read_at + self._least_pause_seconds - loop.time(), 0))
            except TimeoutError:
                pass

    async def _read(self) -> None:
        name = self.terms.issuer
        try:
            keys = parse_keys(await self._fetch(), self.terms.algorithms)
        except (FetchFailed, ValueError) as error:
            if self.failure is None:
                log.warning("keys of an issuer not read", issuer=name, reason=str(error), keeps=self._keys is not None)
            self.failure = str(error)
            return
        except Exception:
            log.exception("keys of an issuer not read", issuer=name)
            self.failure = "an error of this gateway, which is in its log"
            return
        if self.failure is not None or self._keys is None:
            log.info("keys of an issuer read", issuer=name, count=len(keys.ids))
        self.failure = None
        self.read_at = self._clock()
        before, self._keys = self._keys, keys
        if not keys.ids and (before is None or before.ids):
            log.warning("an issuer has no usable key", issuer=name)
        if before is None or before.ids != keys.ids:
            self._missing.clear()
            self.replaced(name, keys.ids)

    def _release(self, waiting: list[asyncio.Future[None]]) -> None:
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


def _unknown() -> InvalidToken:
    return InvalidToken("The token names no key of its issuer.", is_final=False)
