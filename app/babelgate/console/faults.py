"""Which field of a form an error is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from babelgate.errors import BabelgateError, EnvelopeError, InvalidIdempotencyKey, InvalidParameter, UnsupportedByBroker
from babelgate.http.problems import detail_of
from babelgate.schematext import explain, fault_of


class FormRefusal(NamedTuple):
    """Why a form was refused. ``detail``: a sentence. ``faults``: what is wrong with each field."""

    detail: str = ""
    faults: Mapping[str, str] = {}


def faults_of(error: BabelgateError | None) -> dict[str, str]:
    """What is wrong with each member of a request, by the first name of its pointer, or by the name of the parameter.
    Empty for an error that is about none."""
    if isinstance(error, EnvelopeError):
        return {_first(each.pointer): each.detail for each in reversed(error.problems)}
    if isinstance(error, UnsupportedByBroker):
        return {_first(error.facts["pointer"]): detail_of(error)}
    if isinstance(error, InvalidIdempotencyKey):
        return {"idempotency_key": detail_of(error)}
    if isinstance(error, InvalidParameter):
        # A header of the API is a field here.
        name = error.facts["name"].partition(".")[0].lower().replace("-", "_")
        return {name: error.facts["reason"]}
    return {}


def reasons_of(error: ValidationError, schema: dict[str, Any]) -> list[tuple[Sequence[int | str], str]]:
    """The place of each fault in a form that was read as a body with this schema, and what is wrong there."""
    found: list[tuple[Sequence[int | str], str]] = []
    for each in error.errors(include_url=False):
        is_own = each["type"] == "value_error"
        reason = str(each["ctx"]["error"]) if is_own else explain(schema, each["loc"], fault_of(each["type"]))
        found.append((each["loc"], reason))
    return found


def _first(pointer: str) -> str:
    return pointer.removeprefix("/").partition("/")[0]
