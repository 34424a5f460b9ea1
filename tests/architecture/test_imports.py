"""Imports go one way, and every vendor's library stays behind its own module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.sources import belongs, binding_family, imports, modules

PACKAGES = {"app", "app.brokers", "app.observe"}

# Lowest first. A module imports what stands in a lower line, and the parts of its own entry. A new module needs a place
# here; a new binding does not, all of them stand beside the registry.
LAYERS: list[tuple[str, ...]] = [
    ("app.errors", "app.clock", "app.masking", "app.observe.events", "app.pacing", "app.transport", "app.turns"),
    (
        "app.coalescing",
        "app.directories",
        "app.jsontext",
        "app.sources",
        "app.rights",
        "app.leases",
        "app.brokers.binding",
        "app.brokers.options",
        "app.observe.logs",
        "app.observe.otel",
    ),
    ("app.admission", "app.claims", "app.envelope", "app.observe.sparing", "app.observe.journal"),
    ("app.ojs",),
    (
        "app.routing",
        "app.model",
        "app.receiving",
        "app.brokers.registry",
        "app.observe.metrics",
        "app.observe.observers",
        "app.holding",
        "app.outages",
    ),
    ("app.copies", "app.idempotency", "app.observe.tracing"),
    ("app.keeping",),
    ("app.lanes", "app.maintenance", "app.overview"),
    ("app.dead_letters", "app.publishing", "app.settling", "app.peers"),
    ("app.forwarding",),
    ("app.gateway",),
    ("app.gauges",),
    ("app.scraping",),
    ("app.http",),
    ("app.settings", "app.checks"),
    ("app.journaling", "app.keys", "app.tls", "app.instances", "app.healthcheck"),
    ("app.protocol",),
    ("app.listener",),
    ("app.peer_port",),
    ("app.application",),
    ("app.wiring", "app.lifecycle"),
    ("app.server", "app.client"),
    ("app.pipeline",),
    ("app.cli",),
    ("app.demo",),
    ("app.__main__",),
]

# Who alone imports a library. The broker clients need no line: they are extras, and only their binding may import one.
OWNERS: dict[str, tuple[str, ...]] = {
    "sqlite3": ("app.brokers.sqlite",),
    "fastapi": ("app.http",),
    "starlette": ("app.http", "app.application", "app.server", "app.lifecycle", "app.listener"),
    "prometheus_client": ("app.observe.metrics",),
    "opentelemetry": ("app.observe",),
    "structlog": ("app.observe",),
    "yaml": ("app.sources", "app.http.openapi", "app.cli"),
    "uvicorn": ("app.server", "app.protocol", "app.listener", "app.demo"),
    "httptools": ("app.protocol",),
    "click": ("app.cli", "app.pipeline", "app.demo"),
    "rich": ("app.cli", "app.pipeline.console", "app.pipeline.telling"),
    "pyspark": ("app.pipeline",),
    "py4j": ("app.pipeline",),
    "pyarrow": ("app.pipeline",),
    "pandas": ("app.pipeline",),
    "jinja2": ("app.pipeline.page",),
    "vl_convert": ("app.pipeline.charts",),
    "httpx": (
        "app.cli",
        "app.client",
        "app.brokers.rabbitmq_management",
        "app.pipeline.sending",
        "app.pipeline.source",
    ),
    "httpcore": ("app.peers",),
}


def place(name: str) -> tuple[int, str]:
    """The height of a module's line in LAYERS, and the entry it is a part of."""
    family = binding_family(name)
    if name in PACKAGES:
        return -1, name
    if family is not None:
        return place("app.brokers.registry")[0], family
    fits = [(len(entry), height, entry) for height, row in enumerate(LAYERS) for entry in row if belongs(name, entry)]
    assert fits, f"{name} has no layer: give it one in LAYERS"
    _, height, entry = max(fits)
    return height, entry


@pytest.mark.parametrize("name", modules())
def test_imports_go_down(name: str) -> None:
    height, entry = place(name)
    for imported in imports(modules()[name]):
        if belongs(imported, "app"):
            below, of = place(imported)
            assert of == entry or below < height, f"{name} imports {imported}"


@pytest.mark.parametrize("name", modules())
def test_nothing_names_a_binding_but_itself(name: str) -> None:
    """Bindings are found by URL scheme, so a process that does not use one never loads it."""
    for imported in imports(modules()[name]):
        family = binding_family(imported)
        assert family is None or family == binding_family(name), f"{name} imports {imported}"


PIPELINE_KNOWS = ("app.pipeline", "app.envelope", "app.errors", "app.jsontext", "app.observe.journal")


@pytest.mark.parametrize("name", [name for name in modules() if belongs(name, "app.pipeline")])
def test_the_pipeline_knows_the_codec_and_the_journal_only(name: str) -> None:
    """It runs where no gateway is."""
    for imported in imports(modules()[name]):
        if belongs(imported, "app") and imported != "app":
            assert any(belongs(imported, known) for known in PIPELINE_KNOWS), f"{name} imports {imported}"


@pytest.mark.parametrize("name", modules())
def test_a_library_stays_with_its_owner(name: str) -> None:
    for imported in imports(modules()[name]):
        owners = OWNERS.get(imported.split(".")[0])
        assert owners is None or any(belongs(name, owner) for owner in owners), f"{name} imports {imported}"


def test_every_way_to_write_an_import_is_seen(tmp_path: Path) -> None:
    source = tmp_path / "sample.py"
    source.write_text("import redis.asyncio\nfrom app import errors\ndef f():\n    from app.clock import Clock\n")
    assert list(imports(source)) == ["redis.asyncio", "app.errors", "app.clock"]
