"""Formats numbers, times for people."""

from __future__ import annotations

from babelgate.clock import duration, utc_text


def count(value: int | None) -> str:
    """``12,345``; a dash for None."""
    return "–" if value is None else f"{value:,}"


def share(value: float | None) -> str:
    """``2.5 %``; a dash for None."""
    if value is None:
        return "–"
    return "0 %" if value == 0 else "< 0.1 %" if value < 0.001 else f"{value * 100:.1f} %"


def minute(ms: int) -> str:
    """``2026-01-31 23:59`` (UTC)."""
    return moment(ms)[:16]


def moment(ms: int | None) -> str:
    """``2026-01-31 23:59:59.120`` (UTC); a dash for None; the number itself outside the years 1 to 9999."""
    return "–" if ms is None else utc_text(ms, "milliseconds") or str(ms)


def ages(from_seconds: int, below_seconds: int | None) -> str:
    """``1 min to 10 min``, ``under 1 min``, ``over 7 d``."""
    if below_seconds is None:
        return f"over {duration(from_seconds * 1000)}"
    if from_seconds == 0:
        return f"under {duration(below_seconds * 1000)}"
    return f"{duration(from_seconds * 1000)} to {duration(below_seconds * 1000)}"
