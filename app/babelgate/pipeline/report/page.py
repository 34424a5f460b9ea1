"""Renders a report as one HTML file without scripts, links or external resources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from importlib.resources import files
from typing import Any, NamedTuple

from babelgate.clock import duration
from babelgate.pipeline.formatting import ages, count, minute, share
from babelgate.pipeline.report import charts, tables
from babelgate.pipeline.report.figures import Figures, Group
from babelgate.pipeline.report.tables import MOST_ROWS, Table, name_of

_MOST_BARS = 8
_OTHERS = "all others"
_FEWEST = 20
"""Jobs with fewer deliveries are not ranked, unless all jobs have fewer, because their figures mean little."""


class Chart(NamedTuple):
    """A chart: its SVG, a summary in words, and a table of its numbers."""

    title: str
    hint: str
    svg: str
    words: str
    table: Table


def as_html(figures: Figures, console: str | None = None) -> bytes:
    """The page as HTML. Equal figures give equal bytes. Takes about 1 s, and 200 MB for the charts.

    ``console``: the URL of the gateway's console, to which the ids of messages lead.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"count": count, "share": share, "duration": duration, "minute": minute}
    template = environment.from_string(files("babelgate.pipeline.report").joinpath("report.html.j2").read_text("utf-8"))
    sections = [
        ("Over time", _trend(figures)),
        ("Jobs", [*filter(None, (_slowest(figures), _failing(figures)))]),
        ("What needs attention", [*filter(None, (_dead_letters(figures), _violations(figures), _ages(figures)))]),
    ]
    groups = [
        ("Queues", tables.by_group("Queue", figures.queues)),
        ("Producers", tables.by_group("Language", figures.languages)),
    ]
    if len(figures.brokers) > 1:
        groups.append(("Brokers", tables.by_group("Broker", figures.brokers)))
    text = template.render(
        f=figures,
        sections=sections,
        tables=groups,
        open=None if figures.open is None else sum(each.count for each in figures.open),
        targets=tables.targets(figures),
        missed=sum(each.met is False for each in figures.targets or ()),
        comparison=tables.comparison(figures),
        has_partial_day=tables.has_partial_day(figures),
        errors=tables.errors(figures, console),
        checked=tables.checked(figures),
        schemas=tables.schema_violations(figures),
    )
    return text.encode()


def _trend(figures: Figures) -> list[Chart]:
    points = figures.trend
    unit = figures.unit
    is_long = (points[0].name or "")[:4] != (points[-1].name or "")[:4]
    names = [_short(point.name or "", unit, is_long) for point in points]
    marks = names[:: max(1, -(-len(names) // 6))]

    def chart(title: str, of: Callable[[Group], float | None], shown: Callable[[Any], str], colour: str) -> Chart:
        values = [of(point) for point in points]
        ms = shown is duration
        size, unit_name = _scale(max((value or 0 for value in values), default=0)) if ms else (1, "")
        svg = charts.columns(
            [(name, (value or 0) / size) for name, value in zip(names, values, strict=True)], colour, marks
        )
        peak = max(range(len(values)), key=lambda index: values[index] or 0)
        words = f"Highest: {shown(values[peak])}, {names[peak]}"
        rows = [(point.name or "", shown(value)) for point, value in zip(points, values, strict=True)]
        return Chart(title, f"by {unit}, UTC{unit_name}", svg, words, Table((unit.capitalize(), title), rows))

    return [
        chart("Messages accepted", lambda each: each.accepted, count, "var(--c1)"),
        chart("Wait, 95 % within", lambda each: each.wait_p95_ms, duration, "var(--c2)"),
        chart("Dead-lettered", lambda each: each.dead_lettered, count, "var(--bad)"),
    ]


def _short(name: str, unit: str, is_long: bool) -> str:
    """The short name of an hour or day. ``is_long``: the report spans several years, so days need their year."""
    return f"{name[11:13]}:00" if unit == "hour" else name if is_long else f"{date.fromisoformat(name):%d %b}"


def _scale(most: float) -> tuple[int, str]:
    """The divisor of ms for an axis, and the text of its unit."""
    units = ((86_400_000, ", in days"), (3_600_000, ", in hours"), (60_000, ", in minutes"), (1_000, ", in seconds"))
    return next((unit for unit in units if most >= 2 * unit[0]), (1, ", in ms"))


def _ranked(groups: Sequence[Group], by: Callable[[Group], float | None]) -> list[Group]:
    known = [group for group in groups if by(group)]
    many = [group for group in known if group.delivered >= _FEWEST]
    return sorted(many or known, key=lambda each: (-(by(each) or 0), each.name or ""))[:_MOST_BARS]


def _slowest(figures: Figures) -> Chart | None:
    jobs = _ranked(figures.jobs, lambda job: job.e2e_p95_ms)
    if not jobs:
        return None
    rows = [(name_of(job.name), job.e2e_p95_ms or 0, duration(job.e2e_p95_ms)) for job in jobs]
    heads = "Job", "Half within", "95 % within", "99 % within", "Longest"
    table = [
        (name_of(job.name), *map(duration, (job.e2e_p50_ms, job.e2e_p95_ms, job.e2e_p99_ms, job.e2e_max_ms)))
        for job in jobs
    ]
    words = f"Slowest: {rows[0][0]}, {rows[0][2]}"
    hint = "from created to acked, 95 % within"
    return Chart("Slowest jobs", hint, charts.bars(rows, "var(--c2)"), words, Table(heads, table))


def _failing(figures: Figures) -> Chart | None:
    jobs = _ranked(figures.jobs, lambda job: job.dead_letter_rate)
    if not jobs:
        return None
    rows = [(name_of(job.name), job.dead_letter_rate or 0, share(job.dead_letter_rate)) for job in jobs]
    heads = "Job", "Dead-lettered", "Share of ended", "Delivered again"
    table = [
        (name_of(job.name), count(job.dead_lettered), share(job.dead_letter_rate), share(job.retry_rate))
        for job in jobs
    ]
    words = f"Most failing: {rows[0][0]}, {rows[0][2]}"
    hint = "share that was dead-lettered"
    return Chart("Most failing jobs", hint, charts.bars(rows, "var(--bad)"), words, Table(heads, table))


def _dead_letters(figures: Figures) -> Chart | None:
    found = figures.dead_letters
    if not found:
        return None
    rows = [(f"{each.reason}, in {name_of(each.queue)}", each.count, count(each.count)) for each in found[:_MOST_BARS]]
    table = [(each.reason, name_of(each.queue), count(each.count)) for each in found]
    words = f"Most frequent: {rows[0][0]}, {rows[0][2]}"
    shown = Table(("Reason", "Queue", "Messages"), table[:MOST_ROWS], 2, len(table[MOST_ROWS:]))
    return Chart("Dead letters by reason", "messages, by queue", charts.bars(rows, "var(--bad)"), words, shown)


def _violations(figures: Figures) -> Chart | None:
    if not figures.violations:
        return None
    by_reason = Counter[str]()
    by_lang = Counter[str]()
    for each in figures.violations:
        by_reason[each.reason] += each.count
        by_lang[name_of(each.lang)] += each.count
    most_series = len(charts.COLOURS)
    often = [
        reason for reason, _ in by_reason.most_common(most_series if len(by_reason) <= most_series else most_series - 1)
    ]
    pieces = Counter[tuple[str, str]]()
    for each in figures.violations:
        pieces[name_of(each.lang), each.reason if each.reason in often else _OTHERS] += each.count
    series = [*often, _OTHERS] if len(by_reason) > most_series else often
    rows = [
        (lang, reason, pieces[lang, reason])
        for lang, _ in by_lang.most_common(_MOST_BARS)
        for reason in series
        if pieces[lang, reason]
    ]
    checked = Counter[str]()
    for one in figures.checked or ():
        checked[name_of(one.lang)] += one.checked
    table = [(name_of(each.lang), each.reason, count(each.count)) for each in figures.violations]
    most = max(by_lang, key=lambda lang: (by_lang[lang], lang))
    words = f"Most: {most}, {count(by_lang[most])} of {count(checked[most])} bodies checked"
    shown = Table(("Producer", "Reason", "Bodies"), table[:MOST_ROWS], 2, len(table[MOST_ROWS:]))
    hint = "bodies quarantined, by producer language"
    return Chart("Contract violations", hint, charts.stacks(rows, series), words, shown)


def _ages(figures: Figures) -> Chart | None:
    if not figures.open:
        return None
    by_age = Counter[tuple[int, int | None]]()
    for each in figures.open:
        by_age[each.from_seconds, each.below_seconds] += each.count
    rows = [(ages(*age), by_age[age], count(by_age[age])) for age in sorted(by_age, key=lambda age: age[0])]
    oldest = max(figures.open, key=lambda each: each.oldest_ms)
    words = f"Oldest: {duration(oldest.oldest_ms)}, in {name_of(oldest.queue)}"
    table = [
        (
            name_of(each.queue),
            each.state,
            ages(each.from_seconds, each.below_seconds),
            count(each.count),
            duration(each.oldest_ms),
        )
        for each in figures.open
    ]
    shown = Table(("Queue", "State", "Age", "Messages", "Oldest"), table[:MOST_ROWS], 3, len(table[MOST_ROWS:]))
    return Chart(
        "Open messages by age", "neither acked nor dead-lettered", charts.bars(rows, "var(--c1)"), words, shown
    )
