"""Makes from the settings the limits of messages and requests, and of what is in flight."""

from __future__ import annotations

from dataclasses import fields

from babelgate.config.settings import Settings
from babelgate.envelope import Limits
from babelgate.gateway.admission import Bounds
from babelgate.http.body import RequestLimits


def envelope_limits(settings: Settings) -> Limits:
    """Those of an envelope."""
    return Limits(settings.limits.max_message_bytes, settings.limits.max_depth)


def request_limits(settings: Settings) -> RequestLimits:
    """Those of the bodies of requests."""
    return RequestLimits(**{field.name: getattr(settings.limits, field.name) for field in fields(RequestLimits)})


def bounds(settings: Settings) -> Bounds:
    """Those of what is in flight in one process."""
    return Bounds(**{field.name: getattr(settings.limits, field.name) for field in fields(Bounds)})
