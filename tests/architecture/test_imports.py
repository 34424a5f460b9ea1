"""Imports go down through the layers, and every vendor's library stays behind its own package."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.architecture.sources import belongs, binding_family, imports, modules

LAYERS: list[tuple[str, ...]] = [
    (
        "babelgate.errors",
        "babelgate.clock",
        "babelgate.extras",
        "babelgate.jsontext",
        "babelgate.masking",
        "babelgate.schematext",
        "babelgate.terminal",
        "babelgate.urls",
    ),
    ("babelgate.runtime", "babelgate.envelope", "babelgate.privacy"),
    ("babelgate.ojs", "babelgate.observe", "babelgate.schemas"),
    ("babelgate.cloudevents",),
    ("babelgate.brokers",),
    ("babelgate.leases",),
    ("babelgate.gateway",),
    ("babelgate.push", "babelgate.tokens", "babelgate.identities"),
    ("babelgate.cluster", "babelgate.config", "babelgate.pipeline"),
    ("babelgate.http",),
    ("babelgate.console", "babelgate.streams"),
    ("babelgate.server",),
    ("babelgate.cli",),
    ("babelgate.demo", "babelgate.__main__"),
]
"""Lowest first. A module imports modules of lower rows, and modules of its own entry."""

PIPELINE_KNOWS = (
    "babelgate.pipeline",
    "babelgate.clock",
    "babelgate.envelope",
    "babelgate.errors",
    "babelgate.extras",
    "babelgate.jsontext",
    "babelgate.masking",
    "babelgate.schemas",
    "babelgate.terminal",
    "babelgate.urls",
    "babelgate.brokers.landing",
    "babelgate.observe.journal.record",
    "babelgate.privacy.body_keys",
    "babelgate.privacy.ciphers",
)
"""The pipeline runs where no gateway is."""

OWNERS: dict[str, tuple[str, ...]] = {
    "sqlite3": ("babelgate.brokers.sqlite", "babelgate.observe.journal.index"),
    "fastapi": ("babelgate.http",),
    "starlette": ("babelgate.http", "babelgate.server"),
    "prometheus_client": ("babelgate.observe.metrics",),
    "opentelemetry": ("babelgate.observe", "babelgate.gateway.spans"),
    "structlog": ("babelgate.observe",),
    "yaml": ("babelgate.config.sources", "babelgate.http.openapi", "babelgate.cli"),
    "uvicorn": ("babelgate.server", "babelgate.demo"),
    "httptools": ("babelgate.server.protocol", "babelgate.server.malformed"),
    "jsonschema_rs": ("babelgate.schemas",),
    "websockets": ("babelgate.streams.websocket",),
    "click": ("babelgate.cli", "babelgate.pipeline", "babelgate.demo"),
    "rich": ("babelgate.cli", "babelgate.pipeline"),
    "pyspark": ("babelgate.pipeline",),
    "py4j": ("babelgate.pipeline",),
    "pyarrow": ("babelgate.pipeline",),
    "pandas": ("babelgate.pipeline",),
    "deltalake": ("babelgate.pipeline.tables",),
    "duckdb": ("babelgate.pipeline.duckdb_engine",),
    "openlineage": ("babelgate.pipeline.lineage",),
    "jinja2": ("babelgate.console.rendering", "babelgate.pipeline.report"),
    "markupsafe": ("babelgate.console.rendering",),
    "vl_convert": ("babelgate.pipeline.report",),
    "httpx": (
        "babelgate.cli",
        "babelgate.brokers.rabbitmq.management",
        "babelgate.brokers.pulsar",
        "babelgate.pipeline.send",
        "babelgate.pipeline.source",
    ),
    "httpcore": ("babelgate.cluster", "babelgate.push", "babelgate.identities.fetching", "babelgate.schemas.source"),
    "jwt": ("babelgate.identities.keys",),
}
"""Who alone imports a library. A broker's client is an extra, so only its own package may import it."""


def place(name: str) -> tuple[int, str]:
    """The row of a module in LAYERS, and its entry there. Raises StopIteration for a module without one."""
    return next((row, entry) for row, entries in enumerate(LAYERS) for entry in entries if belongs(name, entry))


@cache
def arrows() -> list[tuple[str, str]]:
    """Every import of one of our modules by another: the importer and the imported."""
    found = ((name, imported) for name, path in modules().items() for imported in imports(path))
    return [(name, imported) for name, imported in found if belongs(imported, "babelgate") and imported != "babelgate"]


def test_every_module_has_a_layer() -> None:
    entries = [entry for row in LAYERS for entry in row]
    assert [
        name for name in modules() if name != "babelgate" and not any(belongs(name, entry) for entry in entries)
    ] == []
    assert [entry for entry in entries if entry not in modules()] == []


def test_imports_go_down() -> None:
    upward = []
    for name, imported in arrows():
        if name != "babelgate":
            (row, entry), (row_imported, entry_imported) = place(name), place(imported)
            if entry != entry_imported and row_imported >= row:
                upward.append(f"{name} imports {imported}")
    assert upward == []


def test_nothing_names_a_binding_but_itself() -> None:
    """Bindings are found by URL scheme, so a process that does not use one never loads it."""
    assert [
        f"{name} imports {imported}"
        for name, imported in arrows()
        if binding_family(imported) not in (None, binding_family(name))
    ] == []


def test_the_gateway_does_not_see_who_keeps_a_lease() -> None:
    """One factory chooses a lease manager, and all have one interface."""
    seen = {
        imported
        for name, imported in arrows()
        if not belongs(name, "babelgate.leases") and belongs(imported, "babelgate.leases")
    }
    assert sorted(seen) == ["babelgate.leases.factory", "babelgate.leases.manager", "babelgate.leases.table"]


def test_the_pipeline_knows_the_codec_and_the_journal_only() -> None:
    assert [
        f"{name} imports {imported}"
        for name, imported in arrows()
        if belongs(name, "babelgate.pipeline") and not any(belongs(imported, known) for known in PIPELINE_KNOWS)
    ] == []


def test_a_library_stays_with_its_owner() -> None:
    strangers = []
    for name, path in modules().items():
        for imported in imports(path):
            owners = OWNERS.get(imported.split(".")[0])
            if owners is not None and not any(belongs(name, owner) for owner in owners):
                strangers.append(f"{name} imports {imported}")
    assert strangers == []


def test_every_way_to_write_an_import_is_seen(tmp_path: Path) -> None:
    source = tmp_path / "sample.py"
    source.write_text(
        "import redis.asyncio\nfrom babelgate import errors\ndef f():\n    from babelgate.clock import Clock\n"
    )
    assert list(imports(source)) == ["redis.asyncio", "babelgate.errors", "babelgate.clock"]


def test_no_circle() -> None:
    """Repeatedly removes the modules that import nothing of what is left; a circle is what stays."""
    left = {name: {imported for importer, imported in arrows() if importer == name} - {name} for name in modules()}
    while free := [name for name, below in left.items() if not below & left.keys()]:
        for name in free:
            del left[name]
    assert sorted(left) == []
