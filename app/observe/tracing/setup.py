"""The tracing of this process as OpenTelemetry's variables ask for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from app.observe import otel
from app.observe.tracing.request import Tracing
from app.observe.tracing.sampling import sampling

_SYSTEMS = {"sqs": "aws_sqs"}
"""Brokers that the conventions know by another name than we do."""


def tracing(brokers: Mapping[str, tuple[str, str]], environ: Mapping[str, str] = os.environ) -> Tracing:
    """Off, without anything imported for it, unless an exporter or an endpoint is named. Raises ConfigError.

    ``brokers``: the kind of each (``redis``), and its URL without secrets.
    """
    exporters = otel.asked_for("traces", environ)
    if not exporters:
        return Tracing()
    from app.observe.tracing.recorder import recorder

    sampler = sampling(environ)
    systems = {name: _place(kind, url) for name, (kind, url) in brokers.items()}
    return Tracing(recorder(exporters, environ), sampler, systems)


def check(environ: Mapping[str, str] = os.environ) -> None:
    """Raise ConfigError for variables that :func:`tracing` would refuse; sends nothing."""
    made = tracing({}, environ).recorder
    if made is not None:
        made.discard()


def _place(kind: str, url: str) -> Mapping[str, str | int]:
    parts = urlsplit(url)
    place: dict[str, str | int] = {"messaging.system": _SYSTEMS.get(kind, kind)}
    # An embedded broker is a file, and nowhere.
    if kind != "sqlite" and parts.hostname:
        place["server.address"] = parts.hostname
        if parts.port:
            place["server.port"] = parts.port
    return place
