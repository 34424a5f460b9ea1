"""Loads the configuration again without a restart.

A new configuration is read, checked by the start-up checks, and prepared: new brokers are opened, schemas compiled.
Then one step of the event loop switches to it. What fails before that step leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from msgspec import Struct

from babelgate.brokers.binding import Binding
from babelgate.brokers.registry import driver
from babelgate.cluster.shared_configuration import Proposal, SharedConfiguration
from babelgate.config.changes import changed_keys, needs_restart, shown
from babelgate.config.origin import Origin
from babelgate.config.sections import AuthSettings
from babelgate.config.settings import Settings
from babelgate.errors import BabelgateError, BrokerError, ConfigError, StateUnavailable
from babelgate.gateway.authorization import Caller
from babelgate.gateway.former_file import FormerFile, former_routes, restore
from babelgate.gateway.loaded import (
    NO_FILE,
    REFUSALS,
    ConfigurationAnswer,
    ConfigurationCall,
    LoadedConfiguration,
    Refusal,
    ReloadUnavailable,
    RestartNeeded,
    problems_of,
)
from babelgate.gateway.rate_limits import RateLimits
from babelgate.gateway.route_checks import check, check_moves
from babelgate.gateway.routing import Router
from babelgate.gateway.superseded import let_go
from babelgate.gateway.switching import (
    GatewayParts,
    Switched,
    closed,
    log_left,
    opened,
    queues_in_use,
    switch,
    unlisted,
    warn_of_unused,
)
from babelgate.http.accepted_bodies import AcceptedBodies
from babelgate.http.cors import CorsRules
from babelgate.identities.identities import Identities
from babelgate.identities.issuer import Issuer
from babelgate.observe.logs import get_logger
from babelgate.push.addresses import AddressGuard
from babelgate.push.targets import PushTarget
from babelgate.runtime.background import BackgroundTasks
from babelgate.server.access import accepted_bodies, certificate_rules, cors_rules, make_auth, rate_limits
from babelgate.server.auditing import audit_keys, fingerprint, loaded_at_start
from babelgate.server.bindings import broker_addresses, connect_brokers, encrypting, opened_before, same_servers
from babelgate.server.checks import check_settings
from babelgate.server.job_schemas import job_schemas
from babelgate.server.lifecycle import STARTING, STOPPING, ignore_reload
from babelgate.server.limits import bounds, envelope_limits, request_limits
from babelgate.server.live import LiveParts
from babelgate.server.wiring import push_targets, router
from babelgate.server.worker_group import APART, WorkerGroup

WATCH_SECONDS = 2.0
"""How often the file is looked at, where that is configured."""

log = get_logger(__name__)


class Prepared(Struct, frozen=True, kw_only=True):
    """A configuration that can be switched to, without anything that could fail. ``opened``: its new brokers."""

    settings: Settings
    parts: GatewayParts
    opened: Sequence[Binding]
    down: Mapping[str, BrokerError]
    callers: Mapping[str, Caller] | None
    issuers: Sequence[Issuer]
    cors: CorsRules | None
    accepting: AcceptedBodies | None
    targets: Mapping[str, PushTarget]
    guard: AddressGuard
    queues: Sequence[str]
    unlisted: Sequence[str]


class Reload:
    """Loads the configuration of one process again. ``loaded``: which one it serves."""

    def __init__(
        self,
        live: LiveParts,
        settings: Settings,
        origin: Origin | None,
        shared: SharedConfiguration | None = None,
        accepted: Proposal | None = None,
    ) -> None:
        """``origin`` None: there is nothing to read again. ``shared``: where workers agree on a configuration;
        ``accepted``: the one that ``settings`` are of, None for those of the start."""
        self._live = live
        self._has_opened_port = False
        self._settings = settings
        self._opened = [(settings.brokers[name], binding) for name, binding in live.gateway.bindings.items()]
        """All connections to brokers, with their settings: also those that a reload has removed or replaced."""
        self._origin = origin
        self._former = FormerFile(settings.state_dir)
        self._digest_key = audit_keys(settings)[0]
        self._lock = asyncio.Lock()
        self._ignores: str | None = STARTING
        """Why nothing is loaded now, for the log; None while the process serves."""
        self._tasks: BackgroundTasks[object] = BackgroundTasks()
        self.loaded = live.gateway.overview.loaded = loaded_at_start(settings, live.clock)
        self.loaded.load = self.reload
        self._group: WorkerGroup[Prepared] | None = None
        if shared is not None and live.workers is not None:
            self._group = group = WorkerGroup(shared, live.workers, self, "" if accepted is None else accepted.id)
            self.loaded.workers = group.others
        if accepted is not None:
            self.loaded.version = accepted.version
            self.tried(accepted.file)

    async def start(self) -> None:
        """Watch the file, if that is configured. Raises ConfigError where there is none."""
        if self._settings.reload.watch:
            if self._origin is None or self._origin.path is None:
                raise ConfigError(key="reload.watch", reason="needs a configuration file, by --config")
            self._tasks.start(self._watch(self._origin))
        try:
            former, addresses = await asyncio.to_thread(self._former.read), broker_addresses(self._settings)
            restore(self._live.gateway, former, self._live.clock(), addresses)
        except StateUnavailable as error:
            log.warning("former routes not read", error=error)
        if self._group is not None:
            # Before, what others accept is missed by no call: the start looks for it.
            self.loaded.answer = self._group.answer
            await self._group.start()
        self._ignores = None

    async def close(self) -> None:
        """Stop; idempotent. A switch is not interrupted, because it is one step."""
        self._ignores, self.loaded.answer = STOPPING, None
        await self._tasks.cancel()
        if self._group is not None:
            await self._group.close()
        if self._has_opened_port:
            await self._live.port.close()

    def begin(self, cause: str) -> None:
        """Load the configuration in the background. A refusal is logged. Before the start has ended, and once the stop
        has begun, it is ignored."""
        if self._ignores is not None:
            return ignore_reload(self._ignores)
        self._tasks.start(self._attempt(cause))

    async def _watch(self, origin: Origin) -> None:
        """Load the file when its content has changed, and has stayed the same for one look: it may be written in
        parts."""
        seen: bytes | None = None
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                if self._group is not None and not self._group.watches():
                    continue
                last, seen = seen, await asyncio.to_thread(origin.digest)
            except OSError as error:
                # Such as too many open files.
                log.warning("configuration file not watched now: trying again", error=error)
                continue
            if seen is not None and seen == last and seen != origin.loaded:
                await self._attempt("file")

    async def _attempt(self, cause: str) -> None:
        try:
            await self.reload(cause)
        except REFUSALS:
            log.debug("configuration not applied", cause=cause)
        except Exception:
            log.exception("configuration not applied", cause=cause)

    async def reload(self, cause: str, caller: str | None = None) -> LoadedConfiguration:
        """Read the configuration, and serve by it. ``cause``: what asked for it, for the log.

        Raises one of REFUSALS, whose ``problems`` are all that was found, for one that is refused as a whole.
        """
        group = self._group
        async with self._lock, AsyncExitStack() as turn:
            prepared, candidate = None, None
            try:
                if group is not None:
                    await turn.enter_async_context(group.turn())
                settings = await asyncio.to_thread(self._read)
                prepared = await self.prepare(settings)
                if group is not None and self._origin is not None:
                    candidate = await group.agree(self._origin.text, cause, self._file)
            except BaseException as error:
                if prepared is not None:
                    await self.discard(prepared)
                if isinstance(error, Exception):
                    refusal = (
                        error
                        if isinstance(error, REFUSALS)
                        else ConfigError(key="config", reason=f"was not loaded: {type(error).__name__}")
                    )
                    await self._refused(refusal, cause, caller)
                raise
            changed = await self._serve_by(prepared, cause, candidate)
            self.loaded.counts["applied"] += 1
            if group is not None and candidate is not None:
                await group.tell_applied(candidate)
            if self._live.audit is not None:
                details = {"cause": cause, "changed": changed, "configuration": self._fingerprint(settings)}
                await self._live.audit.recorded("configuration", details, caller=caller)
        return self.loaded

    @property
    def _file(self) -> bytes | None:
        return None if self._origin is None else self._origin.loaded

    def tried(self, file: bytes | None) -> None:
        """Another worker has read the file with this digest, so that the watch does not."""
        if self._origin is not None and file is not None:
            self._origin.loaded = file

    async def apply(self, ready: Prepared, candidate: Proposal) -> None:
        """Serve by what all workers have accepted."""
        await self._serve_by(ready, candidate.cause, candidate)

    async def discard(self, ready: Prepared) -> None:
        """Close the brokers that were opened."""
        await closed(ready.opened)

    def served(self, code: str = "", problems: Sequence[tuple[str, str]] = ()) -> ConfigurationAnswer:
        """What this process serves, for another worker."""
        return self.loaded.served(code, problems)

    def refused_elsewhere(self, refusal: ConfigurationCall) -> None:
        """Remember that another worker has refused a configuration, and has logged why."""
        self.loaded.refusal = Refusal(self._live.clock(), refusal.cause, refusal.problems)

    async def prepare(self, settings: Settings) -> Prepared:
        """Everything that can fail or wait. Raises one of REFUSALS; what is served has not changed then. The
        port for peers may be open, and stays so."""
        schemas = await asyncio.to_thread(job_schemas, settings)
        if keys := needs_restart(self._settings, settings):
            problems = [(key, "has changed and needs a restart; nothing of it is applied") for key in keys]
            raise RestartNeeded(key=problems[0][0], reason=problems[0][1], problems=problems)
        live, gateway = self._live, self._live.gateway
        fresh = connect_brokers(settings, live.clock)
        bindings = {name: opened_before(self._opened, settings.brokers[name], made) for name, made in fresh.items()}
        routes = router(settings, bindings)
        check_moves(gateway.router, routes)
        auth, identities = make_auth(settings, live.clock)
        limits = rate_limits(settings, gateway.router, bindings)
        await self._open_port(routes, limits)
        added = [binding for name, binding in bindings.items() if binding is fresh[name]]
        return Prepared(
            opened=added,
            settings=settings,
            parts=GatewayParts(
                bindings=bindings,
                router=routes,
                required=frozenset(name for name, broker in settings.brokers.items() if broker.required),
                urls={name: broker.masked_url for name, broker in settings.brokers.items()},
                rate_limits=limits,
                schemas=schemas,
            ),
            callers=auth.callers,
            issuers=() if identities is None else list(identities.issuers.values()),
            cors=cors_rules(settings, gateway.router),
            accepting=accepted_bodies(settings, gateway.router),
            targets=push_targets(settings),
            guard=settings.push.guard,
            queues=await queues_in_use(gateway),
            unlisted=await unlisted(gateway),
            # Last: nothing can fail once brokers are open, so none has to be closed again.
            down=await opened(added),
        )

    async def _open_port(self, routes: Router, limits: RateLimits | None) -> None:
        """Open the port for peers with the first route to a broker whose messages only their receiver can settle, or
        with the first limit of leases, of which the receiver has to see the end."""
        needs_port = limits is not None and limits.counts_leases
        if not (self._live.has_port or self._has_opened_port) and (
            needs_port or any(route.settles_elsewhere for _, route in check(routes))
        ):
            await self._live.port.open()
            self._has_opened_port = True

    def _read(self) -> Settings:
        if self._origin is None:
            raise ReloadUnavailable(key="config", reason=NO_FILE)
        if self._settings.workers > 1 and self._group is None:
            raise ReloadUnavailable(key="workers", reason=APART)
        settings = self._origin.load()
        check_settings(settings)
        return settings

    def _switch(self, new: Prepared, queues: Sequence[str]) -> Switched:
        """Serve by ``new``. Nothing here waits or fails, so a request sees one configuration or the other."""
        live = self._live
        for name, broker in new.settings.brokers.items():
            live.systems[name] = driver(name, broker.url).system
        live.gateway.tracing.add_brokers(
            {name: (live.systems[name], broker.masked_url) for name, broker in new.settings.brokers.items()}
        )
        encrypting(new.settings, new.parts.bindings)
        warn_of_unused(live.gateway.router, new.parts.router, new.unlisted)
        live.limits.adopt(request_limits(new.settings))
        live.gateway.limits.adopt(envelope_limits(new.settings))
        limits = live.gateway.rate_limits
        switched = switch(live.gateway, new.parts, queues, new.down, same_servers(self._settings, new.settings))
        live.gateway.admission.configure(bounds(new.settings), len(live.gateway.bindings))
        if limits is not None and live.gateway.rate_limits is None:
            self._tasks.start(limits.close())
        live.api.cors = live.shedder.cors = new.cors
        live.api.accepting = new.accepting
        if live.direct is not None:
            live.direct.configure(new.accepting)
        self._admit(new)
        if live.metrics is not None:
            for queue in live.gateway.router.configured():
                live.metrics.register(queue, live.gateway.router.route(queue).broker)
        logging.getLogger("babelgate").setLevel(new.settings.log_level.upper())
        return switched

    def _admit(self, new: Prepared) -> None:
        """Bring the callers of the configuration up to date. One whose rights are fewer ends what it has under way."""
        callers = self._live.auth.callers
        if callers is None or new.callers is None:
            return
        before = _configured(self._settings)
        for sha256 in before - new.callers.keys():
            if (gone := callers.pop(sha256, None)) is not None:
                gone.revoke()
        for sha256, caller in new.callers.items():
            known = callers.get(sha256)
            if known is not None and sha256 in before and known.ends_at is None:
                known.become(caller)
            else:
                callers[sha256] = caller
        if isinstance(self._live.auth.signed, Identities):
            self._live.auth.signed.configure(new.issuers)
        if self._live.auth.certificates is not None:
            self._live.auth.certificates.use(certificate_rules(new.settings))
        if self._live.tokens is not None:
            self._live.tokens.reserve_names(new.settings.caller_names)

    async def _serve_by(self, new: Prepared, cause: str, candidate: Proposal | None) -> list[str]:
        """Switch; the keys that have changed. Closes the connections that are not needed any more, within 5 s."""
        loaded, live = self.loaded, self._live
        # Some were used first while this was prepared.
        queues = list(dict.fromkeys((*new.queues, *live.gateway.queue_runtimes.queues())))
        rules = {queue: live.gateway.router.rule(queue) for queue in queues}
        switched = self._switch(new, queues)
        changed = changed_keys(self._settings, new.settings)
        self._settings = new.settings
        self._opened += [(new.settings.brokers[binding.name], binding) for binding in new.opened]
        loaded.version = loaded.version + 1 if candidate is None else candidate.version
        loaded.loaded_at, loaded.digest = live.clock(), self._fingerprint(new.settings)["all"]
        loaded.shown, loaded.changed, loaded.refusal = shown(new.settings), changed, None
        log.info("configuration loaded", cause=cause, version=loaded.version, digest=loaded.digest, changed=changed)
        # Before anything that waits longer: a stop in between would lose it.
        if moved := former_routes(switched.moved, rules, live.clock()):
            try:
                await asyncio.to_thread(self._former.add, moved, live.clock())
            except StateUnavailable as error:
                log.warning("former routes not kept: they are forgotten by a restart", error=error)
        await live.pushes.configure(new.targets, new.guard)
        gone = let_go(live.gateway)
        self._opened = [each for each in self._opened if each[1] not in gone]
        log_left(live.gateway, switched)
        await closed(gone)
        return changed

    async def _refused(self, error: BabelgateError, cause: str, caller: str | None) -> None:
        problems = problems_of(error)
        self.loaded.refusal = Refusal(self._live.clock(), cause, problems)
        self.loaded.counts["refused"] += 1
        key, reason = problems[0]
        log.error("configuration refused", cause=cause, key=key, reason=reason, problems=len(problems))
        if self._group is not None:
            await self._group.tell_refused(self.loaded.refusal, self._file)
        if self._live.audit is not None:
            details = {"cause": cause, "refused": [f"{key}: {reason}" for key, reason in problems[:20]]}
            await self._live.audit.recorded("configuration", details, caller=caller)

    def _fingerprint(self, settings: Settings) -> dict[str, str]:
        return fingerprint(settings, self._digest_key)


def _configured(settings: Settings) -> set[str]:
    section = settings.auth
    return {token.sha256.lower() for token in section.tokens} if isinstance(section, AuthSettings) else set()
