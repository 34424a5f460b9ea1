"""Templates of pages, and how they write numbers, sizes and times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from babelgate.clock import utc_text

UNKNOWN = "–"
"""What a page shows where the broker reports nothing."""
_MINUTES = 60
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


class Templates:
    """The templates of ``console/templates``. Every value is escaped, whatever the name of the template."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("babelgate.console"),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(number=number, age=age, size=size, latency=latency, moment=moment, spark=spark)

    def render(self, name: str, context: dict[str, Any]) -> bytes:
        """The text of a template in UTF-8. Lone surrogates, which foreign bodies may have, become question marks."""
        return self._environment.get_template(name).render(context).encode("utf-8", "replace")


def number(value: float | None) -> str:
    """A count or a rate with separators of thousands; :data:`UNKNOWN` for None."""
    if value is None:
        return UNKNOWN
    if value != int(value) and abs(value) < 100:
        return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.2g}"
    return f"{round(value):,}"


def age(seconds: float | None) -> str:
    """A duration in its two largest units; :data:`UNKNOWN` for None."""
    if seconds is None:
        return UNKNOWN
    if seconds < 60:
        return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{seconds:.0f} s"
    left, parts = int(seconds), []
    for length, unit in _UNITS:
        count, left = divmod(left, length)
        if count:
            parts.append(f"{count:,} {unit}")
    if left:
        parts.append(f"{left} s")
    return " ".join(parts[:2])


def latency(seconds: float | None) -> str:
    """A short duration in milliseconds or seconds; :data:`UNKNOWN` for None."""
    if seconds is None:
        return UNKNOWN
    return f"{seconds * 1_000:.3g} ms" if seconds < 1 else age(seconds)


def size(count: int | None) -> str:
    """A number of bytes in its largest unit; :data:`UNKNOWN` for None."""
    if count is None:
        return UNKNOWN
    if count < 1_024:
        return f"{count} B"
    for unit, length in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= length:
            return f"{count / length:.1f} {unit}"
    raise AssertionError


def moment(unix_ms: int | None, precise: bool = False) -> Markup:
    """A time as an element that programs read, too, in UTC, with milliseconds if ``precise``; :data:`UNKNOWN` for None
    and what no calendar has."""
    exact = None if unix_ms is None else utc_text(unix_ms, "milliseconds")
    if exact is None:
        return Markup(UNKNOWN)
    text = exact if precise else exact.partition(".")[0]
    return Markup('<time datetime="{}Z">{} UTC</time>').format(exact.replace(" ", "T"), text)


def spark(values: Sequence[float]) -> Markup:
    """A line of the values of the last minutes, the newest at the right, over an hour and from zero to the greatest.

    Programs for the blind leave it out, because the number stands beside it.
    """
    shown = values[-_MINUTES:]
    greatest = max(shown, default=0)
    points = "H60"
    if greatest:
        first = _MINUTES - len(shown)
        heights = (f"{15 - 14 * value / greatest:.3g}" for value in shown)
        points = f"H{first}L" + "L".join(f"{first + index} {height}" for index, height in enumerate(heights, 1))
    return Markup('<svg class="spark" viewBox="0 0 60 16" aria-hidden="true"><path d="M0 15{}"/></svg>').format(points)
