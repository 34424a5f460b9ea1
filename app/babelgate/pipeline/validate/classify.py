"""Classifies one body as accepted or quarantined, with the gateway's own codec, and makes its row.

Any content gives a row; none raises an error. Spark's Python workers import this module.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from babelgate.envelope import Limits, Poison, canonical, inspect
from babelgate.envelope.contract import is_int64, is_text
from babelgate.errors import Problem
from babelgate.jsontext import JsonSyntaxError, JsonTooDeep, decode_object, is_encodable
from babelgate.pipeline.storage.inputs import Body
from babelgate.schemas.job_schemas import MISSING, TOO_LARGE, VIOLATION

if TYPE_CHECKING:
    from babelgate.schemas.job_schemas import JobSchemas

ACCEPTED, QUARANTINED = "accepted", "quarantined"

FAULTS = ("truncated_file", "unreadable_file", "invalid_export", "no_body", "too_large", "internal_error")
"""The reasons that this job adds to the codes of the codec."""

SCHEMA_FAULTS = (VIOLATION, MISSING, TOO_LARGE)
"""The reasons of what the schema of a job refuses."""

_LIMITS = Limits()
_READABLE_BYTES = 4 * 1024 * 1024
"""The columns of a larger quarantined body stay null, because reading them would parse it again."""


class ValidatedRow(NamedTuple):
    """A row of either dataset. ``verdict`` names the dataset; the other members are its columns."""

    verdict: str
    message_id: str | None = None
    job: str | None = None
    queue: str | None = None
    trace_id: str | None = None
    lang: str | None = None
    created_at: int | None = None
    attempts: int | None = None
    has_dead_letter: bool | None = None
    body: bytes = b""
    body_bytes: int = 0
    body_sha256: str = ""
    source_file: str = ""
    source_at: int = 0
    run_id: str = ""
    rewritten: bool | None = None
    dropped: list[str | None] | None = None
    reason: str | None = None
    reason_pointer: str | None = None
    detail: str | None = None
    truncated: bool | None = None
    violations: list[dict[str, str | None]] | None = None


def classify(found: Body, source: str, run: str, schemas: JobSchemas | None = None) -> ValidatedRow:
    """The row of the body ``found`` in the file ``source``. ``schemas``: those of jobs; None: they are not checked."""
    if found.fault is not None:
        reason, detail = found.fault
        return _quarantined(found, source, run, {}, reason, "", detail)
    try:
        return _readable(found, source, run, schemas)
    except Poison as poison:
        refusal = poison.code, poison.pointer, poison.detail
    except Exception as error:
        refusal = "internal_error", "", f"{type(error).__name__}: {error}"[:500]
    return _quarantined(found, source, run, _readable_columns(found.content), *refusal)


def _readable(found: Body, source: str, run: str, schemas: JobSchemas | None) -> ValidatedRow:
    received = inspect(found.content, _LIMITS)
    made = canonical(found.content)
    problems = () if schemas is None else schemas.problems(received.job, made)
    if problems:
        return _violating(found, source, run, problems)
    return ValidatedRow(
        ACCEPTED,
        _text(received.id),
        _text(received.job),
        _text(received.queue),
        _text(received.trace_id),
        _text(received.lang),
        received.created_at,
        received.attempts,
        received.is_dead_letter,
        made,
        len(made),
        hashlib.sha256(made).hexdigest(),
        source,
        found.at,
        run,
        made is not found.content,
        [_text(each) for each in received.warnings],
    )


def _violating(found: Body, source: str, run: str, problems: Sequence[Problem]) -> ValidatedRow:
    """The row of a body that violates the schema of its job."""
    first = problems[0]
    row = _quarantined(found, source, run, _readable_columns(found.content), first.code, first.pointer, first.detail)
    return row._replace(
        violations=[
            {"pointer": _text(each.pointer), "code": each.code, "detail": _text(each.detail)} for each in problems
        ]
    )


def _quarantined(
    found: Body, source: str, run: str, columns: dict[str, Any], reason: str, pointer: str, detail: str
) -> ValidatedRow:
    return ValidatedRow(
        QUARANTINED,
        **columns,
        body=found.content,
        body_bytes=found.size,
        body_sha256=found.sha256 or hashlib.sha256(found.content).hexdigest(),
        source_file=source,
        source_at=found.at,
        run_id=run,
        reason=reason,
        reason_pointer=_text(pointer),
        detail=_text(detail),
        truncated=found.size > len(found.content),
    )


def _readable_columns(body: bytes) -> dict[str, Any]:
    """The columns of a quarantined body that can be read from it."""
    try:
        return dict(_column_values(body)) if len(body) <= _READABLE_BYTES else {}
    except (JsonSyntaxError, JsonTooDeep, RecursionError, MemoryError):
        return {}


def _column_values(body: bytes) -> Iterator[tuple[str, Any]]:
    top = {member.name: member.value for member in decode_object(body).members}
    meta = top.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    texts = {
        "message_id": meta.get("id"),
        "job": next((top[name] for name in ("job", "urn") if is_text(top.get(name))), None),
        "queue": meta.get("queue"),
        "trace_id": top.get("trace_id"),
        "lang": meta.get("lang"),
    }
    yield from ((name, _text(value)) for name, value in texts.items() if isinstance(value, str))
    integers = {"created_at": meta.get("created_at"), "attempts": top.get("attempts")}
    yield from ((name, value) for name, value in integers.items() if is_int64(value))
    yield "has_dead_letter", isinstance(top.get("dead_letter"), dict)


def _text(value: str | None) -> str | None:
    """``value`` with lone surrogates escaped, because a column must be valid UTF-8."""
    if value is None or is_encodable(value):
        return value
    return value.encode(errors="backslashreplace").decode()
