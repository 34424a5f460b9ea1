"""Which field of a form an error is about."""

from __future__ import annotations

from babelgate.errors import BabelgateError, EnvelopeError, InvalidIdempotencyKey, InvalidParameter, UnsupportedByBroker
from babelgate.http.problems import detail_of


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


def _first(pointer: str) -> str:
    return pointer.removeprefix("/").partition("/")[0]
