"""The parts of one process that a reload of the configuration changes."""

from __future__ import annotations

from msgspec import Struct

from babelgate.clock import Clock
from babelgate.cluster.worker_metrics import Workers
from babelgate.gateway.gateway import Gateway
from babelgate.http.api import Api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from babelgate.http.direct import DirectEndpoints
from babelgate.observe.audit.trail import Audit
from babelgate.observe.metrics.recorder import Metrics
from babelgate.push.pushes import Pushes
from babelgate.server.overload import Shedder
from babelgate.server.peer_port import PeerPort
from babelgate.tokens.tokens import Tokens


class LiveParts(Struct, frozen=True):
    """The parts of a process that a reload changes. ``systems``: OpenTelemetry's names of the brokers' systems.
    ``port``: on which peers call; unless ``has_port``, it is not opened with the application. ``workers``: the others
    of one ``serve``; None where there are none."""

    clock: Clock
    gateway: Gateway
    api: Api
    shedder: Shedder
    direct: DirectEndpoints | None
    auth: Auth
    tokens: Tokens | None
    pushes: Pushes
    metrics: Metrics | None
    systems: dict[str, str]
    audit: Audit | None
    port: PeerPort
    has_port: bool
    workers: Workers | None
    limits: RequestLimits
