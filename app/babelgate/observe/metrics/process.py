"""Measures this process: CPU time, memory, descriptors and start, as Prometheus' own clients report them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping

from prometheus_client import ProcessCollector

from babelgate.observe.metrics.catalogue import (
    PROCESS_CPU,
    PROCESS_MAX_FDS,
    PROCESS_OPEN_FDS,
    PROCESS_RESIDENT_MEMORY,
    PROCESS_START_TIME,
    PROCESS_VIRTUAL_MEMORY,
    Metric,
)
from babelgate.observe.metrics.instruments import Snapshot

_ADDED = (PROCESS_CPU, PROCESS_RESIDENT_MEMORY, PROCESS_VIRTUAL_MEMORY, PROCESS_OPEN_FDS, PROCESS_MAX_FDS)


def of_process() -> Snapshot:
    """The values of this process, which those of other workers are added to; empty where there is no /proc."""
    return _snapshot(os.getpid(), _ADDED)


def of_gateway() -> Snapshot:
    """The start of the process that ``serve`` began with: with several workers, of their parent."""
    parent = multiprocessing.parent_process()
    return _snapshot(os.getpid() if parent is None or parent.pid is None else parent.pid, (PROCESS_START_TIME,))


def _snapshot(pid: int, metrics: tuple[Metric, ...]) -> Snapshot:
    found = _read(pid)
    return {metric.otel: {(): found[metric.name]} for metric in metrics if metric.name in found}


def _read(pid: int) -> Mapping[str, float]:
    families = ProcessCollector(pid=lambda: pid, registry=None).collect()
    return {sample.name: float(sample.value) for family in families for sample in family.samples}
