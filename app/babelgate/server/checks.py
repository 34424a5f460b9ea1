"""The start-up checks: one list, which ``serve`` and ``check-config`` run in the same order.

The checks create nothing and connect to nothing. They do not cover whether the listening addresses are free, because
another process may take one at any time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from babelgate.brokers.binding import Binding
from babelgate.brokers.settings import KeepsFiles
from babelgate.clock import now_ms
from babelgate.config.settings import Settings
from babelgate.config.token_keys import check_token_keys
from babelgate.errors import ConfigError
from babelgate.gateway.route_checks import check
from babelgate.gateway.routing import Route
from babelgate.observe.metrics import otlp as metrics_otlp
from babelgate.observe.tracing.trace import check_env
from babelgate.runtime.files import check_writable
from babelgate.schemas.job_schemas import load, require_library
from babelgate.server.auditing import check_audit
from babelgate.server.bindings import connect_brokers
from babelgate.server.peering import needs_directory, peers_directory
from babelgate.server.tls import load_tls, tls_files
from babelgate.server.wiring import (
    journal,
    key_policy,
    router,
)


class Candidate:
    """A configuration under check, and what several checks derive from it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def bindings(self) -> Mapping[str, Binding]:
        """The binding of each broker, by name."""
        return connect_brokers(self.settings, now_ms)

    @cached_property
    def routes(self) -> list[tuple[str, Route]]:
        """Each configured rule and its route, as :func:`babelgate.gateway.route_checks.check` returns them."""
        return check(router(self.settings, self.bindings))


def brokers(candidate: Candidate) -> object:
    """Each broker's URL and options are valid, and its client is installed."""
    return candidate.bindings


def broker_files(candidate: Candidate) -> None:
    """The files of embedded brokers can be written, or created in a directory that exists."""
    settings = candidate.settings
    for name, binding in candidate.bindings.items():
        for file in binding.files if isinstance(binding, KeepsFiles) else ():
            key, directory = f"brokers.{name}.url", file.parent
            if not directory.is_dir():
                if directory == settings.state_dir.absolute() and not settings.token_keys:
                    # It is created with the token key, which has a check of its own, before the brokers are opened.
                    continue
                raise ConfigError(key=key, reason=f"{file}: {directory} is not a directory")
            check_writable(directory, key)
            if file.exists() and not (file.is_file() and os.access(file, os.R_OK | os.W_OK)):
                raise ConfigError(key=key, reason=f"{file} is not a file that can be written")


def idempotency_store(candidate: Candidate) -> object:
    """The store of idempotency keys can keep keys."""
    return key_policy(candidate.settings, candidate.bindings)


def routes(candidate: Candidate) -> object:
    """Each broker supports its routes."""
    return candidate.routes


def schemas(candidate: Candidate) -> object:
    """The schemas of jobs can be read, and no message can make them slow. What a URL has is seen at the start."""
    section = candidate.settings.schemas
    if section.url is not None:
        require_library("schemas.url")
    return None if section.directory is None else load(section.directory)


def tls(candidate: Candidate) -> None:
    """The certificate and its key, and those of clients' authorities, can be loaded as a serving process will."""
    files = tls_files(candidate.settings)
    if files is not None:
        load_tls(files)


def token_keys(candidate: Candidate) -> None:
    """The keys that sign ack tokens can be read, or the key file can be created."""
    check_token_keys(candidate.settings)


def journal_directories(candidate: Candidate) -> None:
    """The journal can write where it is configured to."""
    configured = journal(candidate.settings)
    if configured is not None:
        configured.check()


def audit_directory(candidate: Candidate) -> None:
    """The audit trail can write where it is configured to."""
    check_audit(candidate.settings)


def telemetry(candidate: Candidate) -> None:
    """OpenTelemetry's environment variables are valid."""
    check_env()
    if candidate.settings.metrics:
        metrics_otlp.check()


def peer_sockets(candidate: Candidate) -> None:
    """The sockets of peers can be created, where the process refuses to start without them."""
    if needs_directory(candidate.settings, candidate.routes):
        check_writable(peers_directory(candidate.settings), "peers.directory")


CHECKS: Sequence[Callable[[Candidate], object]] = (
    brokers,
    broker_files,
    idempotency_store,
    routes,
    schemas,
    tls,
    token_keys,
    journal_directories,
    audit_directory,
    telemetry,
    peer_sockets,
)
"""In the order in which they run. Each raises ConfigError naming a configuration key or an OpenTelemetry variable."""


def check_settings(settings: Settings) -> list[tuple[str, Route]]:
    """Raise the ConfigError of the first check that fails; return each configured rule and its route.

    ``babelgate.config.settings.load`` has validated the settings themselves.
    """
    candidate = Candidate(settings)
    for each in CHECKS:
        each(candidate)
    return candidate.routes
