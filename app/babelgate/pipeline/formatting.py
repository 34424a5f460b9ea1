"""Formats numbers, times for people."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def count(value: int | None) -> str:
    """``12,345``; a dash for None."""
    return "–" if value is None else f"{value:,}"


def share(value: float | None) -> str:
    """``2.5 %``; a dash for None."""
    if value is None:
        return "–"
    return "0 %" if value == 0 else "< 0.1 %" if value < 0.001 else f"{value * 100:.1f} %"


def duration(ms: float | None) -> str:
    """``340 ms``, ``2.5 s``, ``12 min``; a dash for None."""
    if ms is None:
        return "–"
    for size, unit in _UNITS:
        number = ms / size
        # 59.97 s is shown as 1 min.
        if number >= 0.9995:
            return f"{number:.1f} {unit}" if number < 99.95 and round(number, 1) % 1 else f"{number:,.0f} {unit}"
    return f"{ms:.0f} ms"


def minute(ms: int) -> str:
    """``2026-01-31 23:59`` (UTC)."""
    return moment(ms)[:16]


def moment(ms: int | None) -> str:
    """``2026-01-31 23:59:59.120`` (UTC); a dash for None; the number itself outside the years 1 to 9999."""
    if ms is None:
        return "–"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d}"
    except (OverflowError, OSError, ValueError):
        return str(ms)


def ages(from_seconds: int, below_seconds: int | None) -> str:
    """``1 min to 10 min``, ``under 1 min``, ``over 7 d``."""
    if below_seconds is None:
        return f"over {duration(from_seconds * 1000)}"
    if from_seconds == 0:
        return f"under {duration(below_seconds * 1000)}"
    return f"{duration(from_seconds * 1000)} to {duration(below_seconds * 1000)}"
