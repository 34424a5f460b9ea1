"""The rows of messages of a queue."""

from __future__ import annotations

from typing import Any

from babelgate.pipeline.storage.inputs import Body
from babelgate.pipeline.validate.classify import classify

COLUMNS = (
    "message_id string, job string, trace_id string, lang string, created_at bigint, attempts bigint, "
    "body binary, headers map<string,string>"
)
"""The columns of messages; ``body`` is unchanged."""

MessageRow = tuple[Any, ...]


def row_of(body: bytes, headers: dict[str, str], attempts: int | None = None) -> MessageRow:
    """The columns of a message. ``attempts``: by default those of the body."""
    facts = classify(Body(0, body, len(body)), "", "")
    counted = facts.attempts if attempts is None else attempts
    return facts.message_id, facts.job, facts.trace_id, facts.lang, facts.created_at, counted, body, headers
