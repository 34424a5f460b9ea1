"""Where the gateways on this host, and those that are configured, find each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from babelgate.cluster.client import Address
from babelgate.config.settings import Settings
from babelgate.gateway.routing import Route


def peers_directory(settings: Settings) -> Path:
    """The directory in which gateways on this host find each other's sockets."""
    return settings.peers.directory or settings.state_dir / "peers"


def is_owned(routes: Iterable[tuple[str, Route]]) -> bool:
    """Whether some route has messages that only the process that delivered them can settle."""
    return any(route.settles_elsewhere for _, route in routes)


def needs_directory(settings: Settings, routes: Iterable[tuple[str, Route]]) -> bool:
    """Whether the gateway refuses to start without :func:`peers_directory`."""
    return is_owned(routes) and (settings.peers.directory is not None or settings.workers > 1)


def addresses(given: str | Sequence[str] | None) -> list[Address]:
    """Parse ``host:port`` texts, which the settings have validated."""
    several = [given] if isinstance(given, str) else given or ()
    split = [each.rpartition(":") for each in several]
    return [Address(host.strip("[]"), int(port)) for host, _, port in split]
