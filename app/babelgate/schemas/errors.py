"""The errors of operations on schemas."""

from __future__ import annotations

from babelgate.errors import BabelgateError


class SchemaNotFound(BabelgateError):
    """There is no schema of the job {job}."""

    code = "schema_not_found"
