"""The tables as sources of dbt: a file of properties, https://docs.getdbt.com/reference/source-properties."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from babelgate.pipeline.storage.duckdb_sql import duckdb_type
from babelgate.pipeline.storage.schemas import DATASETS

_PAGES = {"accepted": "validate", "quarantined": "validate", "journal": "ingest", "journal_gaps": "ingest"}
"""The page of ``docs/pipeline`` that describes a table; of others it is that of ``metrics``."""


def dbt_sources(names: Iterable[str]) -> Iterator[str]:
    """Yields the lines of a YAML file with the tables ``names``, as the views of DuckDB have their columns."""
    yield "version: 2"
    yield "sources:"
    yield "  - name: babelgate"
    yield "    schema: main"
    yield "    tables:"
    for name in sorted(names):
        page = f"docs/pipeline/{_PAGES.get(name, 'metrics')}.md"
        yield f"      - name: {name}"
        yield f"        description: See {page} of babelgate."
        yield "        columns:"
        for column, kind in DATASETS[name].columns.items():
            # Text of JSON is text of YAML: a type may have quotes and commas.
            yield f"          - {{name: {json.dumps(column)}, data_type: {json.dumps(duckdb_type(kind))}}}"
