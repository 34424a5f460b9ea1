"""Pushes the messages of one queue to its target: receives, posts, and settles by the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Literal

from msgspec import Struct

from babelgate.errors import BabelgateError
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.counted_leases import LeasesExceeded
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.limit_terms import RateTerms
from babelgate.gateway.model import Message, Nack, Reject, Settlement
from babelgate.gateway.settle import way_of
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.observe.tracing.trace import Trace
from babelgate.push.circuit import Pace, TargetCircuit
from babelgate.push.key_order import KeyOrder, Turn
from babelgate.push.leases import Leases
from babelgate.push.posts import described, grouped
from babelgate.push.spans import PushSpan, pushing
from babelgate.push.state import PushFailure, PushState
from babelgate.push.targets import PushTarget
from babelgate.push.transport import Answer, NoAnswer, NotConnected, Poster
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.backoff import Backoff

WAIT_SECONDS = 20.0
"""The wait of one receive. The next one follows at once."""
MAX_RECEIVED = 100
"""Most messages of one receive."""
STOP_SECONDS = 4.0
"""How long a stop waits for posts in flight. Their messages then go back to the queue."""
SETTLE_SECONDS = 2.0
"""How long a stop then waits for settles."""
_BROKER_BACKOFF = (0.2, 10.0)
_SETTLE_BACKOFF = (0.2, 5.0)
_HELD_STATUSES = (429, 503)

Outcome = Literal["acked", "nacked", "rejected", "held", "unreachable"]
"""``held``: the target has asked for a pause, ``unreachable``: no connection. Neither counts as an attempt."""

Report = Callable[[str, str, Outcome, float], None]
"""Called with the queue, the broker, the outcome and the seconds of each post."""

log = get_logger(__name__)
_throttled = LogThrottle(log)


Settle = Callable[[Sequence[str]], Settlement]
"""Makes the settlement of ack tokens."""


class _Verdict(Struct, frozen=True):
    outcome: Outcome
    settlement: Settle
    failure: PushFailure | None = None


class Pusher:
    """The pushes of one queue by this process. The broker distributes the messages between processes.

    A failed post is a nack with the back-off of the queue, and an attempt. A post that the target cannot have seen, or
    whose answer asks for a pause, is none: the message goes back to the queue, and nothing is pushed meanwhile.
    Messages of one ordering key are posted one after the other, as :class:`KeyOrder` says.
    """

    def __init__(self, gateway: Gateway, queue: str, target: PushTarget, poster: Poster, report: Report) -> None:
        self.queue = queue
        self.target = target
        self.state = PushState()
        self.circuit = TargetCircuit()
        self._gateway = gateway
        # Its leases count for the queue, and not for an identity: it has a concurrency of its own.
        self._caller = Caller("push", {queue: frozenset((Right.LISTEN,))}, limits=RateTerms())
        self._poster = poster
        self._report = report
        self._pace = Pace(target.per_second)
        self._slots = asyncio.Semaphore(target.concurrency)
        self._order = KeyOrder()
        self._posting: BackgroundTasks[None] = BackgroundTasks()
        self._unanswered: set[asyncio.Task[None]] = set()
        """Those of ``_posting`` whose post has no outcome yet."""
        self._leases = Leases(gateway, self._caller, queue)
        self._ended = asyncio.Event()
        """Set when a message was settled."""
        self._running: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def in_flight(self) -> int:
        """Messages that were received and are not settled yet."""
        return len(self._leases)

    @property
    def held(self) -> str | None:
        """Why nothing is pushed for a while, as a sentence; None: the circuit is closed."""
        if self.circuit.state == "closed":
            return None
        why = "fails"
        if self.state.failures:
            last = self.state.failures[-1]
            reasons = {"status": f"answered {last.status}", "no_answer": "gave no answer", "internal_error": why}
            why = reasons.get(last.code, "could not be reached")
        # Without its address, which only those see who may manage the queue.
        return f"Messages of the queue {self.queue!r} are not pushed for a while: the target {why}."

    def start(self) -> None:
        """Begin to push; needs a running event loop."""
        loop = asyncio.get_running_loop()
        self._running = loop.create_task(self._run())
        self._keeping = loop.create_task(self._leases.keep())

    async def close(self) -> None:
        """Receive no more; wait for posts in flight for at most STOP_SECONDS, and return the messages of the others.

        What was answered is settled, for at most SETTLE_SECONDS more.
        """
        await _cancel(self._running)
        await self._posting.wait(STOP_SECONDS)
        for task in self._unanswered:
            task.cancel()
        await self._posting.wait(SETTLE_SECONDS)
        await self._posting.cancel()
        await _cancel(self._keeping)
        await self._poster.close()

    async def _run(self) -> None:
        backoff = Backoff(*_BROKER_BACKOFF)
        while not self._gateway.draining:
            limit = await self._next_limit()
            try:
                messages = await self._gateway.receive(
                    self._caller,
                    self.queue,
                    max_messages=limit,
                    wait_seconds=WAIT_SECONDS,
                    trace=self._trace(),
                )
            except LeasesExceeded:
                # It has waited for one to end.
                continue
            except BabelgateError as error:
                _throttled.warning("push not received", queue=self.queue, error=error)
                await asyncio.sleep(backoff.failed())
                continue
            except Exception:
                log.exception("push not received; tried again later", queue=self.queue)
                await asyncio.sleep(backoff.failed())
                continue
            backoff.succeeded()
            # The circuit may have opened during the wait.
            state = self.circuit.state
            most = len(messages) if state == "closed" else int(state == "half_open" and not self._posting)
            if len(messages) > most:
                await asyncio.shield(self._gateway.give_back(self.queue, messages[most:]))
                messages = messages[:most]
            posts = list(grouped(messages, self.target.max_messages or 1))
            self._pace.take(len(posts))
            self._leases.took(messages)
            for several in posts:
                keys = (message.ordering_key for message in several)
                turn = self._order.enter(key for key in keys if key is not None)
                self._posting.start(self._push(several, turn))

    async def _next_limit(self) -> int:
        """Wait until a message may be pushed; return how many."""
        while True:
            self._ended.clear()
            state = self.circuit.state
            free = self.target.concurrency - len(self._posting)
            if state == "open":
                await asyncio.sleep(self.circuit.wait_seconds)
            elif (state == "half_open" and self._posting) or free <= 0 or self._order.is_returning:
                await self._ended.wait()
            elif (posts := self._pace.allowed(1 if state == "half_open" else free)) > 0:
                return 1 if state == "half_open" else self._most(posts)
            else:
                await asyncio.sleep(self._pace.wait_seconds)

    def _most(self, posts: int) -> int:
        """The messages of ``posts``. Those that have failed before have their own posts, which wait for slots."""
        return min(posts * (self.target.max_messages or 1), MAX_RECEIVED)

    async def _push(self, messages: Sequence[Message], turn: Turn) -> None:
        """Post messages in their turn, and settle them by the answer."""
        loop = asyncio.get_running_loop()
        received = messages
        returned: Collection[str] = tuple(turn.keys)
        try:
            if turn.keys:
                messages = await self._in_turn(messages, turn)
            if messages:
                began = loop.time()
                with pushing(self._trace(), self._gateway.router.route(self.queue), self.target, messages) as span:
                    verdict = await self._outcome(messages, span)
                    seconds = loop.time() - began
                    if verdict.failure is not None:
                        span.failed(verdict.failure.code, verdict.failure.detail)
                    await self._settle([message.ack_token for message in messages], verdict.settlement, span.trace)
                returned = self._returned(messages, verdict.outcome)
                self._count(messages, verdict, seconds)
        except Exception:
            log.exception("push failed", queue=self.queue)
        finally:
            turn.end(tuple(turn.keys), returned)
            self._leases.forget(received)
            loop.call_soon(self._ended.set)

    async def _in_turn(self, messages: Sequence[Message], turn: Turn) -> Sequence[Message]:
        """Wait for the turn of messages; return those that may be posted. The others, and all when the call is
        cancelled, go back to the queue."""
        task = asyncio.current_task()
        assert task is not None
        self._unanswered.add(task)
        try:
            while keys := await turn.come():
                behind = [message for message in messages if message.ordering_key in keys]
                messages = [message for message in messages if message.ordering_key not in keys]
                await asyncio.shield(self._settle([message.ack_token for message in behind], _give_back, None))
                turn.end(keys, ())
                self._ended.set()
        except asyncio.CancelledError:
            await asyncio.shield(self._return(messages))
            raise
        finally:
            self._unanswered.discard(task)
        # Another process may have received those whose lease ended meanwhile.
        return [message for message in messages if self._leases.has(message)]

    async def _return(self, messages: Sequence[Message]) -> None:
        await self._leases.let_go([message.ack_token for message in messages])
        await self._gateway.give_back(self.queue, messages)

    def _returned(self, messages: Sequence[Message], outcome: Outcome) -> Collection[str]:
        """The keys of messages that are on the queue again in their places, after a post with this outcome."""
        if outcome in ("acked", "rejected"):
            return ()
        if outcome != "nacked":
            return {message.ordering_key for message in messages if message.ordering_key is not None}
        route, keys = self._gateway.router.route(self.queue), set()
        for message in messages:
            if message.ordering_key is not None:
                way, delay = way_of(route, message.lease, Nack(()))
                # Elsewhere the next attempt is a copy, behind all others.
                if way == "release" and route.releases_natively(delay):
                    keys.add(message.ordering_key)
        return keys

    async def _outcome(self, messages: Sequence[Message], span: PushSpan) -> _Verdict:
        """Post messages. When the call is cancelled, they go back to the queue."""
        task = asyncio.current_task()
        assert task is not None
        self._unanswered.add(task)
        try:
            async with self._slots:
                if self.circuit.state == "open":
                    # It opened while this post waited for a slot.
                    return _Verdict("held", _give_back)
                return await self._posted(messages, span)
        except asyncio.CancelledError:
            await asyncio.shield(self._return(messages))
            raise
        except Exception:
            log.exception("push failed", queue=self.queue)
            failure = PushFailure(self._gateway.clock(), "", None, "internal_error", "an unexpected error, see the log")
            return self._again("nacked", failure)
        finally:
            self._unanswered.discard(task)

    async def _posted(self, messages: Sequence[Message], span: PushSpan) -> _Verdict:
        now = self._gateway.clock()
        identity, headers, body = described(messages, self.target, self.queue, now)
        headers += span.headers
        try:
            answer = await self._poster.post(headers, body)
        except NotConnected as error:
            self.circuit.failed(at_once=True)
            return self._again("unreachable", PushFailure(now, identity, None, "unreachable", str(error)))
        except NoAnswer as error:
            self.circuit.failed()
            return self._again("nacked", PushFailure(now, identity, None, "no_answer", str(error)))
        span.answered(answer.status)
        return self._judged(answer, now, identity)

    def _judged(self, answer: Answer, now: int, identity: str) -> _Verdict:
        """What becomes of messages with this answer."""
        status = answer.status
        if 200 <= status < 300:
            self.circuit.succeeded()
            return _Verdict("acked", lambda tokens: Settlement(acks=tokens))
        detail = f"HTTP {status}" + (f": {answer.excerpt}" if answer.excerpt else "")
        failure = PushFailure(now, identity, status, "status", detail)
        if status in self.target.reject_statuses:
            self.circuit.succeeded()
            why = f"The push to {self.target.host} was answered with {detail}"
            return _Verdict("rejected", lambda tokens: Settlement(rejects=[Reject(tokens, why)]), failure)
        if status in _HELD_STATUSES and answer.retry_after_seconds is not None:
            self.circuit.hold(answer.retry_after_seconds)
            return self._again("held", failure)
        if status >= 500 or status == 429:
            self.circuit.failed()
        else:
            self.circuit.succeeded()
        return self._again("nacked", failure)

    def _again(self, outcome: Outcome, failure: PushFailure) -> _Verdict:
        why = f"The push to {self.target.host} failed: {failure.detail}"
        failed = outcome == "nacked"
        return _Verdict(outcome, lambda tokens: Settlement(nacks=[Nack(tokens, error=why, failed=failed)]), failure)

    async def _settle(self, tokens: Sequence[str], settlement: Settle, trace: Trace | None) -> None:
        """Settle, again and again while the broker does not answer and the lease lasts: a settle may be repeated."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._leases.seconds
        backoff = Backoff(*_SETTLE_BACKOFF)
        if settlement(tokens).nacks:
            await self._leases.let_go(tokens)
        while tokens:
            errors: Sequence[BabelgateError | None]
            try:
                results = await self._gateway.settle(self._caller, self.queue, settlement(tokens), trace)
                errors = [result.error for result in results]
            except BabelgateError as raised:
                errors = [raised] * len(tokens)
            is_over = loop.time() > until
            left = []
            for token, error in zip(tokens, errors, strict=True):
                if error is None:
                    continue
                if is_over or not error.retryable:
                    _throttled.warning("push not settled", queue=self.queue, error=error)
                else:
                    left.append(token)
            if left:
                await asyncio.sleep(backoff.failed())
            tokens = left

    def _count(self, messages: Sequence[Message], verdict: _Verdict, seconds: float) -> None:
        self.state.ended(verdict.outcome, verdict.failure, len(messages))
        if verdict.failure is not None:
            _throttled.warning(
                "push failed",
                queue=self.queue,
                outcome=verdict.outcome,
                host=self.target.host,
                reason=verdict.failure.detail,
            )
        self._report(self.queue, messages[0].lease.broker, verdict.outcome, seconds)

    def _trace(self) -> Trace | None:
        return Trace(self._gateway.tracing) if self._gateway.tracing.recorder is not None else None


def _give_back(tokens: Sequence[str]) -> Settlement:
    return Settlement(nacks=[Nack(tokens, failed=False)])


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait([task])
