"""All pushes of one process: those of the configuration, and those that calls have set."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from babelgate.errors import BabelgateError, ConfigError, InvalidParameter, StateUnavailable
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.spreading import Heard
from babelgate.observe.audit.notes import note
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.push.addresses import AddressGuard
from babelgate.push.errors import PushConfigured, PushNotFound, TooManyPushes
from babelgate.push.file import NO_VERSION, NOTHING, PushFile, Stored, StoredPush, Version, merged
from babelgate.push.pusher import Pusher, Report
from babelgate.push.samples import PushTest, post_sample
from babelgate.push.targets import PushTarget, refusal
from babelgate.push.transport import Poster
from babelgate.runtime.background import BackgroundTasks

FILE_SECONDS = 1.0
"""How often a process looks whether another one has changed the file."""
PEERS_SECONDS = 15.0
"""How often a process asks its peers for changes, beside when one of them has one."""
MAX_PUSHES = 1_000
"""Pushes that calls may set."""

log = get_logger(__name__)
_throttled = LogThrottle(log)


class PushInfo(Struct, frozen=True):
    """A push as operators see it. ``pusher``: of this process; None while it is paused. ``heard``: after a change, who
    knows it."""

    queue: str
    source: Literal["configuration", "api"]
    target: PushTarget
    paused: bool
    pusher: Pusher | None
    heard: Heard[Stored] = Heard()


class PushPeers(Protocol):
    """The other gateways and workers."""

    async def newer(self, versions: Mapping[str, Version], changed: Stored = NOTHING) -> Heard[Stored]:
        """Tell all peers ``changed``, and hear what each has that is newer than ``versions``. Takes 3 s at most. Never
        raises."""

    async def close(self) -> None:
        """Close the connections; idempotent."""


class Pushes:
    """The pushers of the queues that have a target. A part of the application, which starts and closes it.

    Processes agree on what calls have set: by the file of their ``state_dir``, and by asking their peers.

    ``running``: the pusher of each queue that is pushed now.
    """

    def __init__(
        self,
        gateway: Gateway,
        configured: Mapping[str, PushTarget],
        guard: AddressGuard,
        report: Report,
        file: PushFile | None = None,
        peers: PushPeers | None = None,
        make_poster: Callable[..., Poster] = Poster,
    ) -> None:
        """``configured``: the targets of the configuration, by queue. ``file`` None: calls cannot change anything."""
        self._gateway = gateway
        self._configured = configured
        self._guard = guard
        self._report = report
        self._file = file
        self._peers = peers
        self._make_poster = make_poster
        self._stored: Stored = {}
        self._differs = asyncio.Event()
        """Set when this process and a peer have different versions."""
        self._reading = asyncio.Lock()
        self._changing = asyncio.Lock()
        self._watching: list[asyncio.Task[None]] = []
        self._following: BackgroundTasks[None] = BackgroundTasks()
        """Applies the changes of peers."""
        self.running: dict[str, Pusher] = {}

    async def start(self) -> None:
        """Learn what the file and the peers have, and begin to push. Raises ConfigError for a file that cannot be
        read."""
        if self._file is not None:
            try:
                self._stored = await asyncio.to_thread(self._file.read)
            except StateUnavailable as error:
                raise ConfigError(key="state_dir", reason=f"the pushes cannot be read: {error.reason}") from None
            self._watching.append(asyncio.create_task(self._watch(self._file)))
            if self._peers is not None:
                # A target that was removed or paused meanwhile gets nothing.
                await self._ask(self._peers)
                self._watching.append(asyncio.create_task(self._watch_peers(self._peers)))
        await self._apply()

    async def close(self) -> None:
        """Stop, and return what was not settled; at most a little longer than the time-out of a settle."""
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, self._following.cancel(), return_exceptions=True)
        if self._peers is not None:
            await self._peers.close()
        async with self._changing:
            await asyncio.gather(*(pusher.close() for pusher in self.running.values()))
            self.running.clear()

    async def configure(self, configured: Mapping[str, PushTarget], guard: AddressGuard) -> None:
        """Push to the targets of another configuration from now on. Pushers whose target is the same go on."""
        if guard != self._guard:
            # Each has a connection that knows what it may connect to.
            async with self._changing:
                await asyncio.gather(*(pusher.close() for pusher in self.running.values()))
                self.running.clear()
        self._configured, self._guard = configured, guard
        await self._apply()

    def info(self, caller: Caller, queue: str) -> PushInfo:
        """The push of a queue. Raises InvalidParameter, Forbidden, QueueNotFound, PushNotFound."""
        self._gateway.access(caller, Right.MANAGE, queue)
        stored = self._stored.get(queue, StoredPush())
        target = self._configured.get(queue) or stored.target
        if target is None:
            raise PushNotFound(queue=queue)
        source: Literal["configuration", "api"] = "configuration" if queue in self._configured else "api"
        return PushInfo(queue, source, target, stored.paused, self.running.get(queue))

    async def put(self, caller: Caller, queue: str, target: PushTarget) -> PushInfo:
        """Push the queue to ``target`` from now on; return once all peers know it, or after 3 s. A push that is paused
        stays so.

        Raises InvalidParameter, Forbidden, QueueNotFound, PushConfigured, TooManyPushes, StateUnavailable.
        """
        self._gateway.access(caller, Right.MANAGE, queue)
        # Other parts of the address may be secrets.
        note(host=urlsplit(target.url).hostname)
        if queue in self._configured:
            raise PushConfigured(queue=queue)
        if (why := refusal(target.url, self._guard)) is not None:
            raise InvalidParameter(name="url", reason=why, pointer="/url")

        def change(stored: Stored) -> Stored:
            others = (push for name, push in stored.items() if name != queue)
            if sum(push.is_set for push in others) >= MAX_PUSHES:
                raise TooManyPushes(limit=MAX_PUSHES)
            return self._with(stored, queue, target=target)

        heard = await self._change(queue, change)
        return replace(self.info(caller, queue), heard=heard)

    async def delete(self, caller: Caller, queue: str) -> Heard[Stored]:
        """Push the queue no more; return who knows it, once no post of this process is in flight and all peers know it,
        or after 3 s. Raises as :meth:`put`, and PushNotFound. The route of the queue may be gone."""
        caller.require(Right.MANAGE, queue)
        if not self._stored.get(queue, StoredPush()).is_set:
            self._gateway.access(caller, Right.MANAGE, queue)
        if queue in self._configured:
            raise PushConfigured(queue=queue)

        def change(stored: Stored) -> Stored:
            if not stored.get(queue, StoredPush()).is_set:
                raise PushNotFound(queue=queue)
            return self._with(stored, queue, target=None, paused=False)

        return await self._change(queue, change)

    async def set_paused(self, caller: Caller, queue: str, paused: bool) -> PushInfo:
        """Pause the push, or resume it; return once all peers know it, or after 3 s. Raises as :meth:`info`, and
        StateUnavailable."""
        self.info(caller, queue)

        def change(stored: Stored) -> Stored:
            found = stored.get(queue, StoredPush())
            if found.target is None and queue not in self._configured:
                raise PushNotFound(queue=queue)
            return stored if found.paused == paused else self._with(stored, queue, paused=paused)

        heard = await self._change(queue, change)
        return replace(self.info(caller, queue), heard=heard)

    async def test(self, caller: Caller, queue: str) -> PushTest:
        """Post a message that is on no queue to the target, and return what became of it. Raises as :meth:`info`."""
        target = self.info(caller, queue).target
        poster = self._poster(target)
        try:
            return await post_sample(poster, target, queue, self._gateway.clock)
        finally:
            await poster.close()

    def circuits(self) -> Mapping[str, str | None]:
        """Of each queue that is pushed, why nothing is pushed for a while; None: its circuit is closed."""
        return {queue: pusher.held for queue, pusher in self.running.items()}

    def newer(self, versions: Mapping[str, Version]) -> Stored:
        """What is newer here than at a peer that has these versions. What is newer there is asked for soon."""
        own = self._versions()
        if any(version > own.get(queue, NO_VERSION) for queue, version in versions.items()):
            self._differs.set()
        return {queue: push for queue, push in self._stored.items() if push.version > versions.get(queue, NO_VERSION)}

    def _versions(self) -> dict[str, Version]:
        return {queue: push.version for queue, push in self._stored.items()}

    def _with(self, stored: Stored, queue: str, **members: Any) -> Stored:
        """``stored`` with a change, which is newer than the last one whatever the clock of its process was."""
        found = stored.get(queue, StoredPush())
        at = max(self._gateway.clock(), found.at + 1)
        return merged(stored, {queue: replace(found, at=at, change=secrets.token_hex(4), **members)})

    async def learn(self, others: Stored) -> None:
        """Keep what a peer has changed, and follow it in the background. Raises StateUnavailable."""
        if self._file is not None:
            await self._keep(self._file, partial(merged, others=others))
            self._following.start(self._follow())

    async def _follow(self) -> None:
        try:
            await self._apply()
        except Exception:
            # The change is news of the file, which the watch applies within FILE_SECONDS, until it succeeds.
            log.exception("pushes of peers not applied; tried again soon")

    async def _change(self, queue: str, change: Callable[[Stored], Stored]) -> Heard[Stored]:
        """Keep a change of ``queue``, send it to the peers, and follow it; who knows it."""
        if self._file is None:
            raise StateUnavailable(reason="this process keeps no state")
        await self._keep(self._file, change)
        changed = {queue: self._stored[queue]} if queue in self._stored else {}
        telling = self._tell(self._peers, changed) if self._peers is not None else _nobody()
        heard, _ = await asyncio.gather(telling, self._apply())
        note(told=heard.told, silent=len(heard.silent))
        return heard

    async def _tell(self, peers: PushPeers, changed: Stored) -> Heard[Stored]:
        heard = await peers.newer(self._versions(), changed)
        # What is newer there, and what a peer of an earlier version does not know yet, takes another question.
        self._differs.set()
        return heard

    async def _keep(self, file: PushFile, change: Callable[[Stored], Stored]) -> None:
        async with self._reading:
            self._stored = await asyncio.to_thread(file.change, change)

    async def _ask(self, peers: PushPeers) -> bool:
        """Keep what peers have that is newer; whether there is any."""
        assert self._file is not None
        found = False
        for others in (await peers.newer(self._versions())).changes:
            if others:
                found = True
                try:
                    await self._keep(self._file, partial(merged, others=others))
                except StateUnavailable as error:
                    _throttled.warning("pushes of peers not kept", error=error)
                    # Two such processes would ask each other without a pause.
                    await asyncio.sleep(FILE_SECONDS)
        return found

    async def _watch_peers(self, peers: PushPeers) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PEERS_SECONDS):
                    await self._differs.wait()
            self._differs.clear()
            try:
                if await self._ask(peers):
                    await self._apply()
            except Exception:
                log.exception("peers not asked for pushes; tried again later")

    async def _watch(self, file: PushFile) -> None:
        is_applied = True
        while True:
            await asyncio.sleep(FILE_SECONDS)
            try:
                async with self._reading:
                    news = await asyncio.to_thread(file.news)
                    if news is not None:
                        self._stored, is_applied = news, False
                if not is_applied:
                    await self._apply()
                    is_applied = True
            except StateUnavailable as error:
                _throttled.warning("pushes not read", error=error)
            except Exception:
                log.exception("pushes not read; tried again later")

    async def _apply(self) -> None:
        """Stop the pushers whose targets are others now, and start those that are missing."""
        async with self._changing:
            wanted = self._wanted()
            ended = [queue for queue, pusher in self.running.items() if wanted.get(queue) != pusher.target]
            # A stop may cancel this, and closes again what is still there.
            await asyncio.gather(*(self.running[queue].close() for queue in ended))
            for queue in ended:
                del self.running[queue]
            for queue, target in wanted.items():
                if queue not in self.running:
                    poster = self._poster(target)
                    self.running[queue] = pusher = Pusher(self._gateway, queue, target, poster, self._report)
                    pusher.start()

    def _wanted(self) -> dict[str, PushTarget]:
        targets = {queue: each.target for queue, each in self._stored.items() if each.target is not None}
        targets.update(self._configured)
        wanted = {}
        for queue, target in targets.items():
            if self._stored.get(queue, StoredPush()).paused:
                continue
            # The configuration may allow less than it did when the push was set, or have no route for the queue.
            why = refusal(target.url, self._guard)
            try:
                self._gateway.router.route(queue)
            except BabelgateError as error:
                why = str(error)
            if why is not None:
                _throttled.warning("push not started", queue=queue, reason=why)
                continue
            wanted[queue] = target
        return wanted

    def _poster(self, target: PushTarget) -> Poster:
        return self._make_poster(
            target.url,
            self._guard,
            self._gateway.clock,
            timeout_seconds=target.timeout_seconds,
            connections=target.concurrency,
        )


async def _nobody() -> Heard[Stored]:
    """What is heard without peers."""
    return Heard()
