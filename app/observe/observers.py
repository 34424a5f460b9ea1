"""Everybody who observes what the gateway reports, as one."""

from __future__ import annotations

from collections.abc import Sequence

from app.observe.events import Call, Event, Observe
from app.observe.log_throttle import LogThrottle
from app.observe.logs import get_logger

_throttled = LogThrottle(get_logger("babelgate.observe"))


def fan_out(observers: Sequence[Observe]) -> Observe:
    """One observer that tells all of ``observers``; what one of them raises is logged, because what was reported has
    happened, and its caller is to be told that."""

    def observe(reported: Event | Call) -> None:
        for each in observers:
            try:
                each(reported)
            except Exception:
                _throttled.warning("not all was observed", queue=reported.queue, exc_info=True)

    return observe
