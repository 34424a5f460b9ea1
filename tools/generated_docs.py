"""Generates parts of the documentation from the program: ``python -m tools.generated_docs`` writes them.

A part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``; everything else in a page is written by hand.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, get_args, get_origin

import mdformat
import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from babelgate.brokers.binding import Binding, DeadLetters, DeadStore, Lists, Peeks, Purges
from babelgate.brokers.capabilities import BrokerCapabilities
from babelgate.brokers.idempotency_store import KeepsKeys
from babelgate.config.settings import Settings
from babelgate.errors import BabelgateError
from babelgate.http import problems
from babelgate.observe.journal import record as journal
from babelgate.observe.metrics.catalogue import CATALOGUE
from babelgate.pipeline.storage.columns import described
from babelgate.pipeline.storage.schemas import DATASETS
from tests.brokers.redis.rights import commands as redis_commands
from tests.brokers.registry import ALL
from tests.harness.broker import Variant
from tests.harness.caches import CACHES, bounds
from tools import feature_table, versions
from tools.licences import licence, pinned

ROOT = Path(__file__).resolve().parents[1]
CHART = "helm/babelgate"
PAGES = (
    "docs/brokers.md",
    "docs/configuration.md",
    "docs/errors.md",
    "docs/journal.md",
    "docs/redis.md",
    "docs/adr/README.md",
    "docs/licences.md",
    "docs/metrics.md",
    "docs/operating.md",
    "docs/pipeline/columns.md",
    "docs/versions.md",
    f"{CHART}/README.md",
)
_RUNTIME_LOCKS = ("requirements.txt", "requirements-artemis.txt", "requirements-spark.txt")
_PART = re.compile(r"(<!-- generated: ([a-z]+) -->\n).*?(<!-- end -->)", re.S)

SAMPLES = [variant for variant in ALL if variant.column is not None]
"""The columns of the table of capabilities. Every driver of the registry has one."""


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["--"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def choice() -> str:
    """What people choose a broker by: a row for each, from its own ``BrokerCapabilities``."""
    rows = []
    for variant in SAMPLES:
        binding = variant.binding()
        can = binding.capabilities(binding.native_queue("sample", variant.queue_options))
        rows.append(
            [
                f"[{variant.column}]({_PAGES.get(variant.name, f'{variant.broker.kind}.md')})",
                _ordered(variant, can),
                _duration(can.max_delay_seconds),
                _duration(can.max_lease_seconds),
                "yes" if can.ack_scope == "anywhere" else "forwarded to the one that received",
                _mark(isinstance(binding, Peeks)),
            ]
        )
    return table(["", "order", "longest delay", "longest lease", "settle from any replica", "peek"], rows)


_PAGES = {"sqlite": "configuration.md", "rabbitmq-ojs": "ojs.md"}
"""The page of a variant that has none named like its broker."""


def _ordered(variant: Variant, can: BrokerCapabilities) -> str:
    """The order of an ordinary queue, and of one with the option that keeps an order."""
    name, options, words = _KEEPS_ORDER.get(variant.name, ("sample", {}, ""))
    binding = variant.binding()
    kept = binding.capabilities(binding.native_queue(name, {**variant.queue_options, **options}))
    more = f"; {_ORDERS[kept.ordering]} {words}" if kept.ordering != can.ordering else ""
    return _ORDERS[can.ordering] + more


_ORDERS = {"fifo": "first in, first out", "key": "per ordering key", "none": "none"}

_KEEPS_ORDER: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "sqs": ("sample.fifo", {}, "on a FIFO queue"),
    "servicebus": ("sample", {"sessions": True}, "with `sessions`"),
    "pulsar": ("sample", {"key_shared": True}, "with `key_shared`"),
}
"""A queue's native name and options, and words for them."""


def abilities() -> str:
    """What else each broker can do."""
    columns = []
    for variant in SAMPLES:
        binding = variant.binding()
        native = binding.native_queue("sample", variant.queue_options)
        columns.append(list(_abilities(variant, binding, binding.capabilities(native))))
    rows = [[row[0][0], *(value for _, value in row)] for row in zip(*columns, strict=True)]
    return table(["", *(variant.column or "" for variant in SAMPLES)], rows)


def features() -> str:
    """What senders and consumers can ask for on each broker."""
    return table(["", *(variant.column or "" for variant in SAMPLES), "suite"], feature_table.rows(SAMPLES))


def _abilities(variant: Variant, binding: Binding, can: BrokerCapabilities) -> Iterator[tuple[str, str]]:
    yield "longest delay of a nack", _duration(can.max_retry_delay_seconds)
    yield "who keeps a lease", "the broker" if can.lease_bound_to is None else "the replica that received"
    yield "what ends a lease early", _BOUND_TO[can.lease_bound_to]
    yield "an ack after its lease", "`lease_lost`" if "ended_leases" in can.reports else "done until delivered again"
    yield "reports that a lease expired", _mark("expiries" in can.reports)
    yield "deliver again, counted", _atomic(can.native_release)
    yield "deliver again, later", _atomic(can.native_release and can.native_release_delays)
    yield "broker counts failed deliveries", _mark(can.native_release and can.delivery_count != "none")
    yield "native headers", _mark(can.headers)
    yield "broker properties", _mark(bool(can.broker_properties))
    yield "largest message of the broker", _size(can.max_body_bytes)
    yield "messages in one native batch", f"{can.max_batch:,}"
    yield "counts beside ready and dead", ", ".join(_COUNTS[each] for each in _COUNTS if each in can.reports) or "–"
    yield "may count", ", ".join(f"{_COUNTS[each]} as {_COUNTS[to]}" for each, to in can.counted_as.items()) or "–"
    yield "age of the oldest message", _mark("oldest_age_seconds" in can.reports)
    yield "purge", ", ".join(_COUNTS[each] for each in can.purges) if isinstance(binding, Purges) else "–"
    countable = can.purge_counts and can.reports.issuperset({*can.purge_counts} - {"depth"})
    yield "dry run of a purge", _mark(bool(countable))
    yield "dead-letter", _atomic(can.native_dead_letter and isinstance(binding, DeadLetters))
    yield "list and redrive dead letters", _mark(isinstance(binding, DeadStore))
    yield "lists its queues", _LISTED_BY.get(variant.broker.kind, _mark(isinstance(binding, Lists)))
    yield "idempotency keys", "atomic" if isinstance(binding, KeepsKeys) else "kept by another broker"


_BOUND_TO = {
    None: "–",
    "lock": "–",
    "connection": "the end of its connection",
    "partition": "the loss of its partition",
}
_COUNTS = {"depth": "ready", "in_flight": "leased", "delayed": "delayed"}

_LISTED_BY = {
    "rabbitmq": "with its management API",
    "servicebus": "with the right Manage",
    "artemis": "with the right to ask its management address",
}
"""What a broker needs for that, where its ordinary connection or rights do not serve."""


def _mark(yes: bool) -> str:
    return "yes" if yes else "–"


def _atomic(native: bool) -> str:
    return "atomic" if native else "by copy"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "no bound"
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g} {unit}"
    if seconds >= 86_400:
        return f"{math.floor(seconds / 8_640) / 10:g} days"
    return f"{seconds:g} seconds" if seconds else "–"


def _size(count: int | None) -> str:
    if count is None:
        return "no bound"
    return f"{count / 2**20:g} MiB" if count % 2**20 == 0 else f"{count / 2**10:,g} KiB"


def settings() -> str:
    """Every key of the configuration, from the settings tree."""
    return table(["key", "default", "meaning"], list(_fields(Settings, "")))


def _fields(model: type[BaseModel], prefix: str) -> Iterator[list[str]]:
    for name, field in model.model_fields.items():
        key, inner = f"{prefix}{field.alias or name}", _model_of(field.annotation)
        if inner is None:
            yield [f"`{key}`", _default(field.default), field.description or ""]
            continue
        if field.description:
            yield [f"`{key}`", _default(field.default), field.description]
        suffix = _SUFFIXES.get(get_origin(field.annotation), ".")
        if name != "default":
            yield from _fields(inner, key + suffix)


_SUFFIXES: Mapping[Any, str] = {dict: ".NAME.", tuple: "[]."}


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The settings model inside an annotation (a mapping's values, a union's member), or None."""
    if isinstance(annotation, type) and not get_origin(annotation):
        return annotation if issubclass(annotation, BaseModel) else None
    return next((found for arg in get_args(annotation) if (found := _model_of(arg))), None)


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return ""
    if value is None or value in ((), ""):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def codes() -> str:
    """Every error with a code of its own, by status: its code, whether to try again, and what it means."""
    own = [pair for pair in problems.MEANINGS.items() if "code" in vars(pair[0]) and not pair[0].__subclasses__()]
    rows = [
        [str(meaning.status), f"`{error.code}`", "yes" if error.retryable else "", _sentence(error, meaning.title)]
        for error, meaning in sorted(own, key=lambda pair: (pair[1].status, pair[0].code))
    ]
    return table(["status", "code", "retryable", "meaning"], rows)


def _sentence(error: type[BabelgateError], title: str) -> str:
    text = re.sub(r"\{(\w+)\}", r"*\1*", error.__doc__ or "")
    return title if text == "*reason*" else text


def records() -> str:
    """Every member of a journal's record, from its schema."""
    presence = {(False, False): "always", (True, False): "always, may be null", (False, True): "may be absent"}
    rows = [
        [f"`{each.name}`", each.type, presence[each.nullable, each.optional], each.meaning] for each in journal.SCHEMA
    ]
    return table(["member", "type", "there", "meaning"], rows)


def events() -> str:
    """Every event of a journal."""
    return table(["event", "meaning"], [[f"`{event}`", meaning] for event, meaning in journal.EVENTS.items()])


def columns() -> str:
    """Every column of every dataset of the pipeline, from its schema."""
    return "\n".join(
        f"## {dataset.name}\n\n"
        + table(
            ["column", "type", "meaning"],
            [[f"`{name}`", f"`{kind}`", words] for name, kind, words in described(dataset)],
        )
        for dataset in DATASETS.values()
    )


def metrics() -> str:
    """Every metric, from the catalogue."""
    rows = [
        [
            f"`{metric.name}`",
            metric.kind,
            " ".join(f"`{label}`" for label in metric.prometheus_labels),
            "once" if metric.source == "broker" else "sum",
            metric.help,
            f"`{metric.otel}`" + (f", {metric.unit}" if metric.unit else ""),
        ]
        for metric in CATALOGUE
    ]
    return table(["metric", "kind", "labels", "merged", "meaning", "OpenTelemetry"], rows)


def values() -> str:
    """Every value of the chart that has a comment, from values.yaml."""
    text = (ROOT / CHART / "values.yaml").read_text("utf-8")
    defaults = yaml.safe_load(text)
    rows: list[list[str]] = []
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        if words := _COMMENT.fullmatch(line):
            comment.append(words[1])
            continue
        if key := _KEY.match(line):
            path[len(key[1]) // 2 :] = [key[2]]
            if comment:
                default = reduce(getitem, path, defaults)
                rows.append([f"`{'.'.join(path)}`", f"`{json.dumps(default)}`", " ".join(comment)])
        comment = []
    return table(["value", "default", "meaning"], rows)


_COMMENT = re.compile(r" *# (.*)")
_KEY = re.compile(r"( *)([A-Za-z]+):")


def redis_rights() -> str:
    """The commands that the gateway needs in Redis, as rules of a user."""
    rules = textwrap.wrap(" ".join(f"'+{each}'" if "|" in each else f"+{each}" for each in redis_commands()), 90)
    return "```\n" + "\n".join(rules) + "\n```\n"


def licences() -> str:
    """The licence of each distribution that a gateway or the pipeline needs."""
    names = {name for lock in _RUNTIME_LOCKS for name in pinned((ROOT / lock).read_text("utf-8"))}
    return table(["distribution", "licence"], [[name, licence(name)] for name in sorted(names)])


def caches() -> str:
    """What a process remembers."""
    found = bounds()
    rows = [
        [cache.what, cache.scope, f"{bound.entries:,}", f"{bound.max_bytes(cache.entry_bytes) / 2**20:.2g}"]
        for cache in CACHES
        for bound in (found[cache.place],)
    ]
    return table(["remembered", "for each", "most entries", "most MiB"], rows)


def supported() -> str:
    """The versions of Python and of the brokers that the tests run on."""
    return table(["", "version", "tested by", "remark"], versions.rows())


def decisions() -> str:
    """The titles of the decisions' pages."""
    pages = sorted((ROOT / "docs/adr").glob("[0-9]*.md"))
    titles = [page.read_text("utf-8").partition("\n")[0].removeprefix("# ").partition(". ") for page in pages]
    rows = [[f"[{number}]({page.name})", title] for page, (number, _, title) in zip(pages, titles, strict=True)]
    return table(["", "decision"], rows)


PARTS: Mapping[str, Callable[[], str]] = {
    "values": values,
    "metrics": metrics,
    "choice": choice,
    "abilities": abilities,
    "features": features,
    "settings": settings,
    "codes": codes,
    "records": records,
    "events": events,
    "columns": columns,
    "rights": redis_rights,
    "licences": licences,
    "caches": caches,
    "decisions": decisions,
    "versions": supported,
}


def rendered(page: str) -> str:
    """The text of a page with its parts generated again."""
    text = (ROOT / page).read_text("utf-8")
    whole = _PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n{part[3]}", text)
    return mdformat.text(whole, options=tomllib.loads((ROOT / ".mdformat.toml").read_text("utf-8")), extensions=["gfm"])


if __name__ == "__main__":
    for name in PAGES:
        (ROOT / name).write_text(rendered(name), "utf-8")
