"""Renders snapshots for Prometheus: in its text format, or as OpenMetrics with units and exemplars.

One series at a time, so that the event loop can do other work in between. The client library of Prometheus renders the
same bytes in nine times the CPU time; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client.utils import floatToGoString

from babelgate.observe.metrics.catalogue import CATALOGUE, Metric
from babelgate.observe.metrics.instruments import Distribution, Exemplar, Labels, Snapshot, Value

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_OPENMETRICS_VERSIONS = ("", "1.0.0")
_EXPONENT = 1e6
"""From here on a number is written with an exponent."""


def exposition(snapshot: Snapshot, accept: str = "") -> tuple[Iterator[bytes], str]:
    """Render ``snapshot`` in the format that the header ``accept`` prefers; return the pieces of the text, each of one
    series, and its content type."""
    is_open = _wants_openmetrics(accept)
    return _rendered(snapshot, is_open), OPENMETRICS if is_open else TEXT


def _rendered(snapshot: Snapshot, is_open: bool) -> Iterator[bytes]:
    for metric in CATALOGUE:
        several = snapshot.get(metric.otel)
        if several:
            yield _head(metric, is_open)
            render = _renderer(metric, is_open)
            for labels, value in several.items():
                yield render(labels, value).encode()
    if is_open:
        yield b"# EOF\n"


def _head(metric: Metric, is_open: bool) -> bytes:
    name = metric.family if is_open else metric.name
    unit = f"# UNIT {name} {metric.base_unit}\n" if is_open and metric.base_unit else ""
    return f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n{unit}".encode()


def _renderer(metric: Metric, is_open: bool) -> Callable[[Labels, Value], str]:
    """A function that renders one series. Labels are in the order of their names."""
    names = metric.prometheus_labels
    order = sorted(range(len(names)), key=names.__getitem__)
    if metric.kind != "histogram":
        name = metric.name

        def plain(labels: Labels, value: Value) -> str:
            assert not isinstance(value, Distribution)
            pairs = ",".join([f'{names[at]}="{_escaped(labels[at])}"' for at in order])
            return f"{name}{{{pairs}}} {_number(value)}\n" if pairs else f"{name} {_number(value)}\n"

        return plain

    name = metric.family
    before = [at for at in order if names[at] < "le"]
    after = [at for at in order if names[at] > "le"]
    bounds = [*map(_number, metric.bounds), "+Inf"]

    def histogram(labels: Labels, value: Value) -> str:
        assert isinstance(value, Distribution)
        first = "".join([f'{names[at]}="{_escaped(labels[at])}",' for at in before])
        last = "".join([f',{names[at]}="{_escaped(labels[at])}"' for at in after])
        counts = list(accumulate(value.counts))
        exemplars = value.exemplars if is_open else {}
        lines = [
            f'{name}_bucket{{{first}le="{bound}"{last}}} {_number(count)}{_exemplar(exemplars.get(bucket))}\n'
            for bucket, (bound, count) in enumerate(zip(bounds, counts, strict=True))
        ]
        pairs = f"{first}{last[1:]}" if last else first[:-1]
        lines.append(f"{name}_count{{{pairs}}} {_number(counts[-1])}\n{name}_sum{{{pairs}}} {_number(value.sum)}\n")
        return "".join(lines)

    return histogram


def _number(value: float) -> str:
    if -_EXPONENT < value < _EXPONENT:
        return repr(float(value))
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return text


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _exemplar(found: Exemplar | None) -> str:
    if found is None:
        return ""
    labels = f'{{span_id="{found.span_id}",trace_id="{found.trace_id}"}}'
    return f" # {labels} {_number(found.value)} {found.at}"


def _wants_openmetrics(accept: str) -> bool:
    """Return whether ``accept`` names OpenMetrics with at least the quality of the text format."""
    wanted = plain = 0.0
    for entry in accept.split(","):
        media, *parameters = (part.strip().lower() for part in entry.split(";"))
        given = dict(part.split("=", 1) for part in parameters if "=" in part)
        quality = _quality(given.get("q", "1"))
        if media == "application/openmetrics-text" and given.get("version", "") in _OPENMETRICS_VERSIONS:
            wanted = max(wanted, quality)
        elif media in ("text/plain", "text/*", "*/*"):
            plain = max(plain, quality)
    return wanted > 0 and wanted >= plain


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0
