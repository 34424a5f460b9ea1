"""Imports go down through the layers, and every vendor's library stays behind its own package."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.architecture.sources import belongs, binding_family, imports, modules

LAYERS: list[tuple[str, ...]] = [
    ("app.errors", "app.clock", "app.extras", "app.jsontext", "app.masking", "app.schematext", "app.terminal"),
    ("app.runtime", "app.envelope"),
    ("app.ojs", "app.observe"),
    ("app.brokers",),
    ("app.gateway",),
    ("app.cluster", "app.config", "app.pipeline"),
    ("app.http",),
    ("app.server",),
    ("app.cli",),
    ("app.demo", "app.__main__"),
]
"""Lowest first. A module imports modules of lower rows, and modules of its own entry."""

PIPELINE_KNOWS = (
    "app.pipeline",
    "app.envelope",
    "app.errors",
    "app.extras",
    "app.jsontext",
    "app.terminal",
    "app.observe.journal.record",
)
"""The pipeline runs where no gateway is."""

OWNERS: dict[str, tuple[str, ...]] = {
    "sqlite3": ("app.brokers.sqlite",),
    "fastapi": ("app.http",),
    "starlette": ("app.http", "app.server"),
    "prometheus_client": ("app.observe.metrics",),
    "opentelemetry": ("app.observe", "app.gateway.spans"),
    "structlog": ("app.observe",),
    "yaml": ("app.config.sources", "app.http.openapi", "app.cli"),
    "uvicorn": ("app.server", "app.demo"),
    "httptools": ("app.server.protocol", "app.server.malformed"),
    "click": ("app.cli", "app.pipeline", "app.demo"),
    "rich": ("app.cli", "app.pipeline"),
    "pyspark": ("app.pipeline",),
    "py4j": ("app.pipeline",),
    "pyarrow": ("app.pipeline",),
    "pandas": ("app.pipeline",),
    "jinja2": ("app.pipeline.report",),
    "vl_convert": ("app.pipeline.report",),
    "httpx": (
        "app.cli",
        "app.brokers.rabbitmq.management",
        "app.brokers.pulsar",
        "app.pipeline.send",
        "app.pipeline.source",
    ),
    "httpcore": ("app.cluster",),
}
"""Who alone imports a library. A broker's client is an extra, so only its own package may import it."""


def place(name: str) -> tuple[int, str]:
    """The row of a module in LAYERS, and its entry there. Raises StopIteration for a module without one."""
    return next((row, entry) for row, entries in enumerate(LAYERS) for entry in entries if belongs(name, entry))


@cache
def arrows() -> list[tuple[str, str]]:
    """Every import of one of our modules by another: the importer and the imported."""
    found = ((name, imported) for name, path in modules().items() for imported in imports(path))
    return [(name, imported) for name, imported in found if belongs(imported, "app") and imported != "app"]


def test_every_module_has_a_layer() -> None:
    entries = [entry for row in LAYERS for entry in row]
    assert [name for name in modules() if name != "app" and not any(belongs(name, entry) for entry in entries)] == []
    assert [entry for entry in entries if entry not in modules()] == []


def test_imports_go_down() -> None:
    upward = []
    for name, imported in arrows():
        if name != "app":
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


def test_the_pipeline_knows_the_codec_and_the_journal_only() -> None:
    assert [
        f"{name} imports {imported}"
        for name, imported in arrows()
        if belongs(name, "app.pipeline") and not any(belongs(imported, known) for known in PIPELINE_KNOWS)
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
    source.write_text("import redis.asyncio\nfrom app import errors\ndef f():\n    from app.clock import Clock\n")
    assert list(imports(source)) == ["redis.asyncio", "app.errors", "app.clock"]


def test_no_circle() -> None:
    """Repeatedly removes the modules that import nothing of what is left; a circle is what stays."""
    left = {name: {imported for importer, imported in arrows() if importer == name} - {name} for name in modules()}
    while free := [name for name, below in left.items() if not below & left.keys()]:
        for name in free:
            del left[name]
    assert sorted(left) == []
