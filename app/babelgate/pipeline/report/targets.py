"""Targets of a report: ``p99=2s``, for all queues or some."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from babelgate.pipeline.report.figures import Group, TargetFigures

_TARGET = re.compile(
    r"(?:(?P<queues>[^:=]+):)?(?P<wait>wait_)?(?P<of>p50|p95|p99|max)=(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|s|min|h)",
    re.ASCII,
)
_UNITS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000}


class LatencyTarget(NamedTuple):
    """The most that a latency of some queues may be. ``queues``: a pattern; ``member``: of a Group, in ms."""

    queues: str
    member: str
    limit_ms: float


def parse_target(text: str) -> LatencyTarget:
    """Parses ``[QUEUES:]NAME=TIME``, such as ``p99=2s``. Raises ValueError."""
    found = _TARGET.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not [QUEUES:]NAME=TIME, such as p99=2s or orders.*:wait_p95=500ms")
    member = f"{'wait' if found['wait'] else 'e2e'}_{found['of']}_ms"
    return LatencyTarget(found["queues"] or "*", member, float(found["number"]) * _UNITS[found["unit"]])


def check_targets(targets: Iterable[LatencyTarget], queues: Iterable[Group]) -> Sequence[TargetFigures]:
    """Each target for each queue that it is for. One for no queue is listed once, with its pattern, as not measured."""
    found: list[TargetFigures] = []
    groups = list(queues)
    for each in targets:
        fitting = [queue for queue in groups if fnmatchcase(queue.name or "", each.queues)]
        if not fitting:
            found.append(TargetFigures(each.queues, each.member, each.limit_ms, None, None))
        for queue in fitting:
            actual = getattr(queue, each.member)
            met = None if actual is None else actual <= each.limit_ms
            found.append(TargetFigures(queue.name, each.member, each.limit_ms, actual, met))
    return found
