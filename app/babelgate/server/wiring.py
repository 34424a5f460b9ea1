"""Builds the gateway and the application from the settings."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from babelgate import __version__
from babelgate.brokers.binding import Binding
from babelgate.brokers.idempotency_store import KeepsKeys, Terms
from babelgate.brokers.landing import landing_store
from babelgate.brokers.registry import driver
from babelgate.clock import Clock, now_ms
from babelgate.cluster.asking import EXCHANGE_SECONDS, AllPeers, Exchanging
from babelgate.cluster.client import ANSWER_SECONDS
from babelgate.cluster.peers import Peers
from babelgate.cluster.pushing import PeerPushes
from babelgate.cluster.pushing import opened as opened_pushes
from babelgate.cluster.roll_call import PeerRollCall
from babelgate.cluster.scrape import Scraping
from babelgate.cluster.sealing import PeerCipher
from babelgate.cluster.searching import PeerSearch
from babelgate.cluster.signing import Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import PAUSES_PATH, TOKENS_PATH, PushQuestion, decode_pauses, decode_tokens
from babelgate.cluster.worker_metrics import Workers
from babelgate.config.sections import QueueSettings
from babelgate.config.settings import Settings
from babelgate.config.token_keys import token_keys
from babelgate.console.frame import ConsoleFrame
from babelgate.console.sessions import Sessions
from babelgate.console.site import Console
from babelgate.errors import ConfigError
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.admission import Admission
from babelgate.gateway.forwarding import Forwarder
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.gauges import Gauges
from babelgate.gateway.history import History, Journaled
from babelgate.gateway.idempotency import NONE, OWN, KeyPolicy
from babelgate.gateway.pause_file import PauseFile
from babelgate.gateway.pauses import Pauses
from babelgate.gateway.redacting import protection_of
from babelgate.gateway.replicas import Identity, Replicas
from babelgate.gateway.route_checks import check
from babelgate.gateway.routing import Policy, Router, Rule
from babelgate.http.api import Handler, create_api
from babelgate.http.audited import HttpAudit
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from babelgate.http.direct import DirectEndpoints
from babelgate.http.observers import AccessLog, Durations
from babelgate.observe.events import Observe, fan_out
from babelgate.observe.journal.writer import Journal, Options, host_node
from babelgate.observe.metrics import otlp as metrics_otlp
from babelgate.observe.metrics.labels import QueueLabels
from babelgate.observe.metrics.recorder import Metrics
from babelgate.observe.rates import RateCounters
from babelgate.observe.tracing.trace import Tracing, tracing_from_env
from babelgate.privacy.ciphers import BodyCipher
from babelgate.privacy.protection import Protection
from babelgate.privacy.redaction import Redaction
from babelgate.push.file import PushFile
from babelgate.push.pushes import Pushes
from babelgate.push.targets import PushTarget
from babelgate.runtime.files import identity
from babelgate.server.access import accepted_bodies, cors_rules, make_auth, make_tokens, rate_limits, rate_store
from babelgate.server.application import App, Part
from babelgate.server.auditing import loaded_at_start, make_audit
from babelgate.server.bindings import body_cipher, broker_addresses, connect_brokers
from babelgate.server.job_schemas import SchemaRefresh, job_schemas
from babelgate.server.limits import bounds, envelope_limits, request_limits
from babelgate.server.live import LiveParts
from babelgate.server.overload import Pacer, Shedder
from babelgate.server.peer_port import PeerPort
from babelgate.server.peering import addresses, is_owned, needs_directory, peers_directory
from babelgate.server.tls import make_tls
from babelgate.streams.serving import Streaming
from babelgate.tokens.tokens import Tokens


def resolve(settings: Settings, clock: Clock = now_ms) -> Router:
    """The routes of a configuration, checked against their brokers; no I/O. Raises ConfigError naming the key."""
    bindings = connect_brokers(settings, clock)
    key_policy(settings, bindings)
    return router(settings, bindings)


def router(settings: Settings, bindings: Mapping[str, Binding]) -> Router:
    """The routes, checked against what their brokers can do. Raises ConfigError naming the key."""
    shares_rates = rate_store(settings, bindings) is not None
    common = broker_addresses(settings), bindings, shares_rates, body_cipher(settings)
    rule = partial(_rule, common)
    rules = [rule(match, queue) for match, queue in settings.queues.items()]
    default = rule("*", settings.default) if settings.default is not None else None
    made = Router(rules, default)
    check(made)
    return made


def key_policy(settings: Settings, bindings: Mapping[str, Binding]) -> KeyPolicy:
    """Where idempotency keys are kept, and for how long. Raises ConfigError naming ``idempotency.store``, or a route
    that needs keys where none are kept."""
    section = settings.idempotency
    if section.store not in (OWN, NONE) and not isinstance(bindings[section.store], KeepsKeys):
        reason = f"the broker {section.store!r} cannot keep keys; docs/brokers.md says which can"
        raise ConfigError(key="idempotency.store", reason=reason)
    for key, queue in settings.routes.items():
        store = queue.broker if section.store == OWN else section.store
        for index, accepted in enumerate(queue.accept):
            if accepted.idempotency_header is not None and not isinstance(bindings.get(store), KeepsKeys):
                reason = f"idempotency.store is {section.store}, and no keys are kept for this route"
                raise ConfigError(key=f"{key}.accept.{index}.idempotency_header", reason=reason)
    return KeyPolicy(section.store, Terms(section.retention_seconds, section.max_keys))


def build_gateway(
    settings: Settings,
    *,
    clock: Clock = now_ms,
    observe: Observe = lambda event: None,
    forwarder: Forwarder | None = None,
    tracing: Tracing | None = None,
    capacity: Callable[[], Awaitable[None]] | None = None,
    counters: RateCounters | None = None,
    history: History | None = None,
) -> Gateway:
    """Build the gateway without starting it. Creates the token key when there is none. Raises ConfigError."""
    bindings = connect_brokers(settings, clock)
    limits = envelope_limits(settings)
    routes = router(settings, bindings)
    return Gateway(
        bindings,
        routes,
        TokenSealer(token_keys(settings)),
        required=frozenset(name for name, broker in settings.brokers.items() if broker.required),
        urls={name: broker.masked_url for name, broker in settings.brokers.items()},
        limits=limits,
        clock=clock,
        observe=observe,
        admission=Admission(bounds(settings), len(bindings)),
        forwarder=forwarder,
        tracing=tracing,
        idempotency=key_policy(settings, bindings),
        capacity=capacity,
        jobs_directory=settings.state_dir / "redrives",
        counters=counters,
        history=history,
        pauses=Pauses(clock, PauseFile(settings.state_dir / "pauses"), routes.route),
        rate_limits=rate_limits(settings, routes, bindings),
    )


def build_app(settings: Settings, *, clock: Clock = now_ms, workers_directory: Path | None = None) -> App:
    """Build the ASGI application: the HTTP API, and a lifespan that starts and closes its gateway. Raises ConfigError.

    ``workers_directory``: the directory in which the workers of one ``serve`` share their metrics, and find each other.
    """
    systems = {name: driver(name, broker.url).system for name, broker in settings.brokers.items()}
    traced = tracing_from_env({name: (systems[name], each.masked_url) for name, each in settings.brokers.items()})
    labels = QueueLabels(None if workers_directory is None else workers_directory / "labels")
    metrics = Metrics(clock, systems, labels) if settings.metrics else None
    journaled = journal(settings, clock)
    counters = RateCounters(clock)
    observers = [each.observe for each in (metrics, counters, journaled) if each is not None]
    signer = Signer(token_keys(settings), clock)
    directory = SocketDirectory(peers_directory(settings))
    places = [*addresses(settings.peers.addresses), *addresses(settings.peers.dns)]
    # A peer may itself wait for its broker.
    answer_seconds = max((broker.timeout_seconds for broker in settings.brokers.values()), default=0) + 1
    peers = Peers(signer, directory, places, max(answer_seconds, ANSWER_SECONDS))
    capacity = journaled.capacity if journaled is not None and settings.journal.when_full == "wait" else None
    searching = PeerSearch(signer, directory, places)
    gateway = build_gateway(
        settings,
        clock=clock,
        observe=fan_out(observers),
        forwarder=peers,
        tracing=traced,
        capacity=capacity,
        counters=counters,
        history=_history(settings, journaled, searching),
    )
    gateway.schema_checks.schemas = job_schemas(settings)
    if journaled is not None:
        journaled.protect(lambda queue: protection_of(gateway.router, queue))
    told = AllPeers(signer, directory, places, EXCHANGE_SECONDS, "pauses")
    gateway.pauses.peers = Exchanging(gateway.incarnation, told, PAUSES_PATH, decode_pauses)
    limits = request_limits(settings)
    audit = make_audit(settings, clock)
    durations = Durations(metrics) if metrics is not None else None
    scraping: Scraping | None = None
    otlp: metrics_otlp.OtlpMetrics | None = None
    parts: list[Part] = [searching, gateway.pauses, SchemaRefresh(gateway.schema_checks)]
    workers: Workers | None = None
    if workers_directory is not None:
        gateway.rates.siblings = workers = Workers(gateway.incarnation, workers_directory, directory, signer)
    if metrics is None:
        parts += [] if workers is None else [workers]
    else:
        for queue in gateway.router.configured():
            metrics.register(queue, gateway.router.route(queue).broker)
        scraping = Scraping(metrics, Gauges(gateway, metrics, journal=journaled, audit=audit), workers)
        otlp = metrics_otlp.otlp_metrics(scraping.alone)
        parts += [scraping] if otlp is None else [otlp, scraping]
    cipher = PeerCipher(token_keys(settings))
    pushes = _pushes(settings, gateway, metrics, PeerPushes(gateway.incarnation, signer, cipher, directory, places))
    parts.append(pushes)
    gateway.overview.pushes = pushes
    gateway.overview.loaded = loaded_at_start(settings, clock)
    # It closes after them, because they may still record something.
    parts += [] if audit is None else [audit]
    ended = [] if durations is None else [durations.ended]
    malformed = [] if durations is None else [durations.malformed]
    if settings.access_log:
        access = AccessLog(settings.log_format, sys.stdout)
        ended.append(access.ended)
        malformed.append(access.malformed)
    auth, identities = make_auth(settings, clock)
    knowing = AllPeers(signer, directory, places, EXCHANGE_SECONDS, "tokens")
    tokens = make_tokens(settings, auth, Exchanging(gateway.incarnation, knowing, TOKENS_PATH, decode_tokens), clock)
    making = tokens if isinstance(tokens, Tokens) else None
    parts += [each for each in (making, identities) if each is not None]
    if identities is not None:
        gateway.overview.issuers = identities.states
    cors = cors_rules(settings, gateway.router)
    accepting = accepted_bodies(settings, gateway.router)
    api = create_api(
        gateway,
        auth=auth,
        limits=limits,
        prefix=settings.prefix,
        scraping=scraping,
        ended=ended,
        console=_console(settings, gateway, auth, limits, clock, pushes, making),
        cors=cors,
        pushes=pushes,
        stream=Streaming(gateway).serve,
        accepting=accepting,
        tokens=tokens,
        audit=None if audit is None else HttpAudit(audit),
    )
    refused = durations.refused if durations is not None else None
    shedder = Shedder(Pacer(time.thread_time), gateway.has_backlog, refused, cors)
    # The access log has a line for each request, with what only an exchange knows.
    direct = (
        None
        if settings.access_log
        else DirectEndpoints(
            gateway, auth, settings.prefix, metrics.request if metrics is not None else None, accepting
        )
    )
    # Without configured peers they are needed only for brokers that bind a message to its receiver, for journals, and
    # between workers.
    routes = check(gateway.router)
    called = (
        is_owned(routes) or gateway.counted.are_limited or journaled is not None or settings.peers.listen is not None
    )
    has_port = called or workers_directory is not None
    roll_call = PeerRollCall(signer, directory, places)
    parts.append(roll_call)
    node = settings.journal.node or host_node()
    group = gateway.incarnation if workers_directory is None else workers_directory.name
    own = Identity(gateway.incarnation, node, group, os.getpid(), __version__, clock())
    gateway.overview.replicas = Replicas(own, roll_call if has_port else None)
    tls = make_tls(settings, auth.certificates, clock)
    listen = next(iter(addresses(settings.peers.listen)), None) if called else None
    report = scraping.report if scraping is not None else None

    async def newer(question: PushQuestion) -> str:
        if question.sealed:
            await pushes.learn(opened_pushes(cipher, question.sealed))
        return cipher.seal(msgspec.json.encode(pushes.newer(question.versions)))

    port = PeerPort(gateway, signer, directory, listen, needs_directory(settings, routes), report, newer, making)
    changing = gateway, api, shedder, direct, auth, making, pushes, metrics, systems, audit
    live = LiveParts(clock, *changing, port, has_port, workers, limits)
    opened = port if has_port else None
    all_parts = api, gateway, shedder, parts, journaled, otlp, opened, peers
    return App(*all_parts, direct=direct, malformed=malformed, tls=tls, live=live)


def _console(
    settings: Settings,
    gateway: Gateway,
    auth: Auth,
    limits: RequestLimits,
    clock: Clock,
    pushes: Pushes,
    tokens: Tokens | None,
) -> Handler | None:
    """What serves the pages of the console; None where it is off."""
    if not settings.has_console:
        return None
    section = settings.console
    frame = ConsoleFrame(
        gateway,
        auth,
        limits,
        Sessions(token_keys(settings), clock),
        prefix=settings.prefix,
        read_only=section.read_only,
        trace_url=section.trace_url,
        report=section.report,
        pushes=pushes,
        tokens=tokens,
    )
    return Console(frame).serve


def _pushes(settings: Settings, gateway: Gateway, metrics: Metrics | None, peers: PeerPushes) -> Pushes:
    """The pushes of the configuration, of ``state_dir``, and of peers."""
    targets = push_targets(settings)
    report = metrics.pushed if metrics is not None else lambda *post: None
    return Pushes(gateway, targets, settings.push.guard, report, PushFile(settings.state_dir / "pushes"), peers)


def push_targets(settings: Settings) -> dict[str, PushTarget]:
    """The targets of the pushes of the configuration, by queue."""
    return {queue: route.push.target for queue, route in settings.queues.items() if route.push is not None}


def _history(settings: Settings, journaled: Journal | None, peers: PeerSearch) -> History:
    """The reader of the journals of this process and its peers."""
    if journaled is None:
        return History()
    place = journal_directory(settings)
    section = settings.journal
    own = Journaled(journaled.search, section.node or host_node(), lambda: identity(place), section.meta)
    return History(own, peers)


def journal(settings: Settings, clock: Clock = now_ms) -> Journal | None:
    """Build the journal without starting it; None when none is configured. Raises ConfigError."""
    options = journal_options(settings)
    return None if options is None else Journal(options, clock)


def journal_options(settings: Settings) -> Options | None:
    """The options of the journal; None when none is configured."""
    section = settings.journal
    if section.landing is None:
        return None
    return Options(
        landing=section.landing,
        open_directory=journal_directory(settings),
        node=section.node,
        compression=section.compression,
        segment_bytes=section.segment_bytes,
        segment_seconds=section.segment_seconds,
        bodies=section.bodies,
        meta=section.meta,
        buffer_bytes=section.buffer_bytes,
        max_bytes=section.max_bytes,
        wait=section.when_full == "wait",
        open_store=landing_store,
    )


def journal_directory(settings: Settings) -> Path:
    """The directory of the segments of the journal that have not landed."""
    return settings.journal.open_directory or settings.state_dir / "journal"


def _rule(
    common: tuple[Mapping[str, str], Mapping[str, Binding], bool, BodyCipher], match: str, queue: QueueSettings
) -> Rule:
    addresses, bindings, shares_rates, cipher = common
    redaction = Redaction(queue.redact) if queue.redact else None
    policy = Policy(
        lease_seconds=queue.lease_seconds,
        max_attempts=queue.max_attempts,
        backoff_seconds=queue.backoff_seconds,
        ttl_seconds=queue.ttl_seconds,
        dead_letter_retention_seconds=queue.dead_letter_retention_seconds,
        ordering_key=queue.ordering_key,
        expired=queue.expired,
        limits=None if queue.limits is None else queue.limits.counted(shares_rates),
        schema=queue.schema_mode,
        schema_on_receive=queue.schema_on_receive and queue.schema_mode != "off",
        redaction=redaction,
        encrypt=queue.encrypt,
        protection=Protection(redaction, cipher if queue.encrypt else None) if redaction or queue.encrypt else None,
    )
    parking = None if queue.parking is None else bindings[queue.parking]
    broker = queue.broker
    return Rule(match, bindings[broker], policy, queue.native_name, queue.options, parking, addresses[broker])
