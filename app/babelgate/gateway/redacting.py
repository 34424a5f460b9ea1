"""What is redacted of the messages of a queue, and edits of dead letters by people who have not seen it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from babelgate.errors import EnvelopeError, Problem
from babelgate.gateway.dead_letters import Letter
from babelgate.gateway.routing import Policy, Route, Router
from babelgate.privacy.protection import HIDDEN, Protection
from babelgate.privacy.redaction import MARKER

_DETAIL = f"The dead letter has no value here that {MARKER} could stand for: write one."


def protection_of(router: Router, queue: str | None) -> Protection | None:
    """What becomes of the bodies of ``queue`` in the journal; None: they are written as they are. All values of a queue
    without a route are redacted."""
    rule = None if queue is None else router.rule(queue)
    return HIDDEN if rule is None else rule.policy.protection


def described(policy: Policy) -> dict[str, Any]:
    """The members of ``policy`` as plain data, without how bodies are redacted and encrypted."""
    members = asdict(replace(policy, redaction=None, protection=None))
    del members["redaction"], members["protection"]
    return members


def with_values(body: bytes, letter: Letter, route: Route) -> bytes:
    """The edited ``body`` with the values of ``letter`` where it still has the marker of a redacted one.

    ``route``: of the letter. Raises EnvelopeError where the letter has no such value.
    """
    redaction = route.policy.redaction
    if redaction is None:
        return body
    body, missing = redaction.restored(body, letter.record.body)
    if missing:
        raise EnvelopeError([Problem(each, "redacted_value", _DETAIL) for each in missing])
    return body


def as_shown(body: bytes, *routes: Route) -> bytes:
    """``body`` for people, redacted as each of ``routes`` says."""
    for route in routes:
        if route.policy.redaction is not None:
            body = route.policy.redaction.redacted(body)
    return body
