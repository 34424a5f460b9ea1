"""The first page: the last hour, what needs attention, brokers and processes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from babelgate import __version__
from babelgate.console.answers import PageAnswer
from babelgate.console.routes import PageRoute
from babelgate.console.visits import Visit
from babelgate.gateway.authorization import OPERATORS
from babelgate.gateway.model import BrokerInfo
from babelgate.gateway.rates import RatesOverview
from babelgate.gateway.replicas import ServingProcesses

_BUSIEST = 10
_FEW = 3
"""Up to this number of minutes, the running one is drawn, too."""
_CHARTS = {
    "throughput": ("published", "delivered", "acked"),
    "failures": ("nacked", "rejected", "dead_lettered", "lease_expired", "broker_errors", "dropped"),
    "latencies": ("publish_p50_seconds", "publish_p99_seconds", "delivery_p50_seconds", "delivery_p99_seconds"),
}
"""The charts, and the figures that each draws."""
WORDS = {
    "published": "published",
    "delivered": "delivered",
    "acked": "acked",
    "nacked": "nacked",
    "rejected": "rejected",
    "dead_lettered": "dead-lettered",
    "lease_expired": "leases expired",
    "broker_errors": "broker errors",
    "dropped": "expired and dropped",
    "publish_p50_seconds": "publish, median",
    "publish_p99_seconds": "publish, 99 %",
    "delivery_p50_seconds": "to delivery, median",
    "delivery_p99_seconds": "to delivery, 99 %",
}
"""The figures in words."""


async def show(visit: Visit) -> PageAnswer:
    """The page, or its live part."""
    overview = visit.gateway.rates.overview(visit.caller, _BUSIEST)
    brokers, serving, rates = await asyncio.gather(_brokers(visit), _serving(visit), overview)
    return visit.page(
        "overview.html",
        "overview_live.html",
        brokers=brokers,
        serving=serving,
        rates=rates,
        schemas_not_read=_schemas_not_read(visit),
        figures=msgspec.json.encode(_figures(rates)).decode(),
        charts=_CHARTS,
        words=WORDS,
        version=__version__,
    )


async def _brokers(visit: Visit) -> list[BrokerInfo] | None:
    """The brokers that the user manages; None for a user who manages nothing."""
    if not visit.caller.patterns(*OPERATORS):
        return None
    return await visit.gateway.overview.brokers(visit.caller)


async def _serving(visit: Visit) -> ServingProcesses | None:
    """The replicas and workers; None for a user who manages nothing."""
    replicas = visit.gateway.overview.replicas
    if replicas is None or not visit.caller.patterns(*OPERATORS):
        return None
    return await replicas.serving(visit.caller)


def _schemas_not_read(visit: Visit) -> str | None:
    """Why this process checks messages by older schemas than those at their URL; None for others than operators."""
    return visit.gateway.schema_checks.refresh_failure if visit.caller.patterns(*OPERATORS) else None


def _figures(rates: RatesOverview) -> dict[str, Any]:
    """What the script draws: the times in Unix seconds, and of each chart its figures with their names. The running
    minute would look like a fall."""
    minutes = rates.minutes[:-1] if len(rates.minutes) > _FEW else rates.minutes
    return {
        "at": [minute.at // 1_000 for minute in minutes],
        **{
            chart: [{"label": WORDS[name], "values": [getattr(minute, name) for minute in minutes]} for name in names]
            for chart, names in _CHARTS.items()
        },
    }


ROUTES = (PageRoute(method="GET", path="", handler=show, menu="Overview"),)
