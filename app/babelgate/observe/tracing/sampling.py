"""Decides which requests are sampled, before a span is created. Pure.

Implements the standard's samplers (https://opentelemetry.io/docs/specs/otel/trace/sdk/#sampling), selected by
``OTEL_TRACES_SAMPLER`` and ``OTEL_TRACES_SAMPLER_ARG``. If the trace is derived from a ``trace_id`` and no context
travelled, the root sampler decides on a hash of the trace id. So all gateways with the same ratio decide alike.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from msgspec import Struct

from babelgate.errors import ConfigError
from babelgate.observe.tracing.context import Context

_LIMIT = 1 << 64
_RATIOS = {"always_on": 1.0, "always_off": 0.0, "traceidratio": None}
_PARENT_BASED = "parentbased_"


def randomness(trace_id: int) -> int:
    """Return a number from 0 to 2^64 - 1, uniform for any kind of trace id: the first 8 bytes of its SHA-256.

    The trace id of an envelope is often a UUID, which has fixed bits (RFC 9562, sections 4.1 and 4.2).
    """
    return int.from_bytes(hashlib.sha256(trace_id.to_bytes(16, "big")).digest()[:8], "big")


class Sampling(Struct, frozen=True):
    """A root is sampled when the :func:`randomness` of its trace id is below ``bound``, from 0 (none) to 2^64 (all).

    With ``parent_based`` a child is sampled if its parent is; otherwise the rule for roots applies.
    """

    bound: int
    parent_based: bool

    def root(self, trace_id: int) -> bool:
        """Return whether a new trace is sampled."""
        # Most processes have the ratio 0 or 1, which needs no hash.
        return self.bound == _LIMIT or (self.bound > 0 and randomness(trace_id) < self.bound)

    def child(self, parent: Context) -> bool:
        """Return whether a child of ``parent``, whose sampling is decided, is sampled."""
        return bool(parent.sampled) if self.parent_based else self.root(int(parent.trace_id, 16))


def sampling(environ: Mapping[str, str] = os.environ) -> Sampling:
    """Return the sampler that the variables name; ``parentbased_always_on`` by default.

    Raises ConfigError for an unknown sampler or an invalid ratio.
    """
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower() or "parentbased_always_on"
    root = name.removeprefix(_PARENT_BASED)
    if root not in _RATIOS:
        known = ", ".join(f"{prefix}{each}" for each in _RATIOS for prefix in ("", _PARENT_BASED))
        raise ConfigError(key="OTEL_TRACES_SAMPLER", reason=f"must be one of {known}")
    ratio = _RATIOS[root]
    if ratio is None:
        ratio = _ratio(environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip() or "1.0")
    return Sampling(round(ratio * _LIMIT), name != root)


def _ratio(given: str) -> float:
    try:
        ratio = float(given)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise ConfigError(key="OTEL_TRACES_SAMPLER_ARG", reason="must be a number from 0 to 1")
    return ratio
