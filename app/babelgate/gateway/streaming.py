"""Streams: deliveries of one queue that are handed out to one consumer as they come, as far as its window is open.

A stream is one more caller of receives and settles. It asks the queue's receiver for as many messages as its window
has room, prolongs their leases while it is open, and gives back what is not settled when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from babelgate.errors import BabelgateError, Draining, LeaseLost, Unauthenticated, UnsupportedByBroker
from babelgate.gateway.access import Access
from babelgate.gateway.ack_tokens import Lease
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.counted_leases import LeasesExceeded
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Message
from babelgate.gateway.open_streams import StreamLease, StreamOptions
from babelgate.gateway.routing import Route
from babelgate.gateway.stream_leases import prolonged
from babelgate.observe.tracing.trace import Trace
from babelgate.runtime.backoff import Backoff

MAX_IN_FLIGHT = 1_000
"""The largest window of a stream."""

MAX_HOLD_SECONDS = 3_600.0
"""How long after its hand-out a stream prolongs a lease at most. A consumer that hangs and keeps its connection open
loses its messages then."""

DRAIN_SECONDS = 5.0
"""How long a stream of a gateway that stops waits for the settles of what it has handed out."""

_MAX_ASKED = 100
"""Maximum messages of one receive of a stream."""
_ASKED_BYTES = 4_194_304
"""Most bytes that one receive of a stream should return, estimated from the size of earlier messages."""
_WAIT_SECONDS = 3_600.0
"""A stream asks again after this time. It has no meaning for the client."""
_FIRST_LOOK_SECONDS = 0.05
"""How soon a stream with a full window looks whether another replica has settled some of it. The pauses double."""
_TOP_UP_SECONDS = 0.02
"""How long a stream waits for more settles while its consumer has more than half of the window to work on."""
_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.5, 30.0
"""The pauses after a failed receive."""
_LEAST_EXTENSION_SECONDS = 1.0
"""A lease is not prolonged for less."""


class Stream:
    """The deliveries of one consumer. A context manager: at its end, what is not settled is given back, uncounted.

    ``window``: the maximum number of unsettled messages; a consumer may change it.

    A message leaves the window when it is settled. A settle by this process is seen at once, also one that another
    replica forwards, which it does wherever the leases are kept by this process. Where the broker keeps them, any
    replica settles without this one. There a full window whose oldest message stays is looked through by prolonging its
    leases, at first after 0.05 s, then after pauses that double up to a third of the lease. Without ``auto_extend`` a
    message that was settled elsewhere leaves the window when its lease ends.
    """

    def __init__(
        self, gateway: Gateway, caller: Caller, queue: str | Access, options: StreamOptions, trace: Trace | None = None
    ) -> None:
        """Raises Forbidden, QueueNotFound, InvalidParameter, UnsupportedByBroker, and Draining."""
        self._gateway = gateway
        self._options = options
        self._go_to(gateway.access(caller, Right.LISTEN, queue), options.lease_seconds)
        if gateway.draining:
            raise Draining
        self.window = options.max_in_flight
        self._trace = trace
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._in_flight: dict[str, StreamLease] = {}
        self._ready: list[Message] = []
        self._failure: BaseException | None = None
        self.refusal: BabelgateError | None = None
        """Why this stream ends: its consumer is no longer authenticated."""
        self._receive: asyncio.Future[list[Message]] | None = None
        """The receive that waits."""
        self._leave: Callable[[], object] = _nothing
        """Ends it."""
        self._backoff = Backoff(_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS)
        self._must_rest = False
        """Whether a receive has failed a moment ago."""
        self._mean_bytes = 1
        self._top_up: asyncio.TimerHandle | None = None
        self._has_waited = False
        """Whether settles were waited for since the last receive."""
        self._pause = _FIRST_LOOK_SECONDS
        self._oldest: str | None = None
        """The message that had been in the window longest when the timer was set."""
        self._timer: asyncio.TimerHandle | None = None
        self._prolonging: asyncio.Task[None] | None = None
        self.is_draining = False
        """Whether the gateway stops: nothing more is handed out."""
        self._is_taking = self._asks = self._is_late = self._drain_was_seen = self._drain_is_over = self._closed = False

    def _go_to(self, access: Access, lease_seconds: float | None) -> None:
        """Take messages by the route of ``access`` from now on."""
        self.access = access
        self.route = route = access.route
        self._lease_seconds = route.lease_seconds(lease_seconds)
        self._usual_pause = self._lease_seconds / 3
        self.labels = (route.queue, route.broker)
        capabilities = route.capabilities
        self._hold_seconds = min(MAX_HOLD_SECONDS, capabilities.max_lease_seconds)
        is_bound = capabilities.lease_bound_to is not None
        self._foreign = self._options.auto_extend and not is_bound
        """Whether another replica may settle what this process does not see."""
        self._is_sticky = is_bound and capabilities.ack_scope == "anywhere"
        """Whether another replica may, unless the token sends the settle here."""

    def __enter__(self) -> Stream:
        self._gateway.streams.add(self, self.access.caller)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def in_flight(self) -> int:
        """The number of messages that were handed out and are not settled, as far as this process knows."""
        return len(self._in_flight)

    @property
    def is_over(self) -> bool:
        """Whether the stream ends now, because the gateway stops, and all is settled or its time is over."""
        return self.is_draining and (not self._in_flight or self._drain_is_over)

    async def take(self, wait_seconds: float) -> Sequence[Message]:
        """The messages that have come, as soon as there are some; none after ``wait_seconds``, and at the start and the
        end of a drain.

        Raises the errors of a receive. The stream can be used further, and tries again after 0.5 s, then after pauses
        that double up to 30 s. When this call is cancelled, no message is lost.
        """
        self._is_late = False
        timer = self._loop.call_later(wait_seconds, self._end_wait)
        try:
            while self.refusal is not None or not self._ready:
                if self.refusal is not None:
                    raise self.refusal
                self._wake.clear()
                self._ask()
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
                if self._is_late or self.is_over or (self.is_draining and not self._drain_was_seen):
                    self._drain_was_seen = self.is_draining
                    break
                self._is_taking = True
                await self._wake.wait()
            ready, self._ready = self._ready, []
            return ready
        finally:
            self._is_taking = False
            timer.cancel()

    def resize(self, window: int) -> None:
        """Change the window to 0 to MAX_IN_FLIGHT messages. With 0 nothing more is handed out."""
        self.window = window
        # It asks for as many as the earlier window has room.
        self._leave_receive()
        self._wake.set()

    def settled(self, handle: str, action: str, outcome: Any) -> None:
        """A consumer has settled or extended the lease of ``handle``, with this outcome."""
        held = self._in_flight.get(handle)
        if held is None:
            return
        if isinstance(outcome, int):
            held.ends = self._loop_time_of(outcome)
            self._look_by(held.ends)
        elif outcome is None or outcome == "dead_lettered" or isinstance(outcome, LeaseLost):
            self._drop(handle)

    def drain(self) -> None:
        """Hand out nothing more, and end within DRAIN_SECONDS; idempotent."""
        self._loop.call_later(DRAIN_SECONDS, self._end_drain)
        self.retire()

    def move(self, route: Route) -> None:
        """Take messages by ``route``, to which the queue has moved. What was handed out is settled where it is from."""
        longest, asked = route.capabilities.max_lease_seconds, self._options.lease_seconds
        self._go_to(Access(self.access.caller, Right.LISTEN, route), None if asked is None else min(asked, longest))
        self._leave_receive()
        self._wake.set()

    def retire(self) -> None:
        """Hand out nothing more, and end once all is settled; idempotent."""
        if not self.is_draining:
            self.is_draining = True
            self._leave_receive()
            self._wake.set()

    def expire(self) -> None:
        """End with Unauthenticated: hand out nothing more; idempotent."""
        self.refusal = Unauthenticated()
        self._leave_receive()
        self._wake.set()

    def close(self) -> None:
        """End the stream: what is not settled is given back in the background. Idempotent."""
        if self._closed:
            return
        self._closed = True
        streams = self._gateway.streams
        streams.remove(self)
        self._leave_receive()
        for timer in (self._timer, self._top_up):
            if timer is not None:
                timer.cancel()
        left = [held.lease for held in self._in_flight.values()]
        for lease in left:
            self._forget(lease.handle)
        if left:
            streams.returning.start(self._give_back(left))

    def _end_wait(self) -> None:
        self._is_late = True
        self._wake.set()

    def _end_drain(self) -> None:
        self._drain_is_over = True
        self._wake.set()

    def _end_top_up(self) -> None:
        self._top_up = None
        self._has_waited = True
        self._wake.set()

    def _end_rest(self) -> None:
        self._must_rest = False
        self._wake.set()

    def _ask(self) -> None:
        """Begin a receive if the window has room and none waits."""
        free = self.window - len(self._in_flight)
        if free <= 0 or self._receive is not None or self.is_draining or self._must_rest:
            return
        if free * 2 < self.window and not self._has_waited:
            if self._top_up is None:
                self._top_up = self._loop.call_later(_TOP_UP_SECONDS, self._end_top_up)
            return
        self._has_waited = False
        room = min(free, _MAX_ASKED, max(_ASKED_BYTES // self._mean_bytes, 1))
        gateway, access = self._gateway, self.access
        receive: asyncio.Future[list[Message]]
        try:
            begun = gateway.begin_receive(access, room, _WAIT_SECONDS, self._lease_seconds)
        except BabelgateError as error:
            self._fail(error)
            return
        if begun is None:
            begin = partial(gateway.receive, access.caller, access, max_messages=room, trace=self._trace)
            receive = self._loop.create_task(begin(wait_seconds=_WAIT_SECONDS, lease_seconds=self._lease_seconds))
            self._leave = receive.cancel
        else:
            receiver, waiter = begun
            receive, self._leave = waiter.future, partial(receiver.leave, waiter)
        self._receive = receive
        receive.add_done_callback(self._arrived)

    def _leave_receive(self) -> None:
        if self._receive is not None:
            self._receive = None
            self._leave()
            self._leave = _nothing

    def _fail(self, failure: BaseException) -> None:
        """The next receive waits a while."""
        self._failure = failure
        self._must_rest = True
        self._loop.call_later(self._backoff.failed(), self._end_rest)
        self._wake.set()

    def _arrived(self, receive: asyncio.Future[list[Message]]) -> None:
        """The receive has ended. What comes after the end of the stream is given back."""
        if self._receive is receive:
            self._receive, self._leave = None, _nothing
        if receive.cancelled():
            return
        failure = receive.exception()
        # A receive that had no room for a lease all the time is as one that found nothing.
        if failure is not None and not isinstance(failure, LeasesExceeded):
            self._fail(failure)
            return
        self._backoff.succeeded()
        messages = [] if failure is not None else receive.result()
        if self._closed:
            if messages:
                self._gateway.streams.returning.start(self._give_back([message.lease for message in messages]))
            return
        if messages:
            if self._is_sticky:
                messages = list(map(self._gateway.queue_runtimes.of(self.route).sticky, messages))
            self._mean_bytes = max(sum([len(each.body) for each in messages]) // len(messages), 1)
            holders, queue = self._gateway.streams.holders, self.route.queue
            until = self._loop.time() + self._hold_seconds
            for message in messages:
                handle = message.lease.handle
                ends = self._loop_time_of(message.lease_expires_at)
                self._in_flight[handle] = StreamLease(message.lease, ends, until)
                holders[queue, handle] = self
            self._ready += messages
            self._look_by(self._loop.time() + (self._pause if self._is_full else self._usual_pause))
        self._wake.set()

    @property
    def _is_full(self) -> bool:
        """Whether the window is full, perhaps of messages that others have settled."""
        return self._foreign and len(self._in_flight) >= self.window

    def _loop_time_of(self, expires_at: int) -> float:
        """The loop's time at ``expires_at``, Unix ms."""
        return self._loop.time() + (expires_at - self._gateway.clock()) / 1000

    def _forget(self, handle: str) -> None:
        del self._in_flight[handle]
        self._gateway.streams.holders.pop((self.route.queue, handle), None)

    def _drop(self, handle: str) -> None:
        """A message leaves the window, which may have room for more now."""
        self._forget(handle)
        if self.is_draining:
            self._wake.set()
        elif self._is_taking and not self._asks:
            # One settle may end many leases: the receive is for the room of all.
            self._asks = True
            self._loop.call_soon(self._ask_soon)

    def _ask_soon(self) -> None:
        self._asks = False
        if self._is_taking and not self._closed:
            self._ask()

    def _look_by(self, when: float) -> None:
        """Look through the window at this time of the loop, or before."""
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)
        self._oldest = next(iter(self._in_flight), None)

    def _look(self) -> None:
        """Drop the leases that are over, and prolong those that must not end, or of which others may know more."""
        self._timer = None
        now = self._loop.time()
        for handle in [handle for handle, held in self._in_flight.items() if held.ends <= now]:
            self._drop(handle)
        if not self._in_flight:
            return
        pause = _FIRST_LOOK_SECONDS if self._is_full else self._usual_pause
        # Nothing is missed where the oldest message leaves: one that was settled elsewhere stays, and is it then.
        is_stuck = self._is_full and next(iter(self._in_flight)) == self._oldest
        if self._options.auto_extend and self._prolonging is None:
            soon = now + self._lease_seconds * 0.7
            due = {
                handle: held
                for handle, held in self._in_flight.items()
                if (is_stuck or held.ends < soon) and held.until - now >= _LEAST_EXTENSION_SECONDS
            }
            if due:
                self._prolonging = self._loop.create_task(self._prolong(due))
        if is_stuck:
            pause = self._pause = min(self._pause * 2, self._usual_pause)
        self._look_by(min(now + pause, min(held.ends for held in self._in_flight.values())))

    async def _prolong(self, due: dict[str, StreamLease]) -> None:
        """Prolong leases; of a full window, to see which have ended elsewhere."""
        try:
            now = self._loop.time()
            async for handle, outcome in prolonged(self._gateway, self.route, due, self._lease_seconds, now):
                if (held := self._in_flight.get(handle)) is None:
                    continue
                if isinstance(outcome, int):
                    held.ends = self._loop_time_of(outcome)
                elif isinstance(outcome, LeaseLost):
                    self._pause = _FIRST_LOOK_SECONDS
                    self._drop(handle)
                elif isinstance(outcome, UnsupportedByBroker):
                    # The broker prolongs it no further.
                    held.until = 0.0
        finally:
            self._prolonging = None

    async def _give_back(self, leases: Sequence[Lease]) -> None:
        if self._prolonging is not None:  # An extend that reaches the broker later would lease them again.
            await asyncio.wait([self._prolonging])
        await self._gateway.former.give_back(self.route.queue, leases, self._gateway.router)


def _nothing() -> None:
    """Ends no receive."""
