"""Hooks of the schemathesis run: valid requests stay valid, but do not wait for half a minute each."""

from __future__ import annotations

from typing import Any

import schemathesis

PATIENCE = 0.02


def _hurry(parameters: Any) -> None:
    if isinstance(parameters, dict) and "wait_seconds" in parameters:
        wait = parameters["wait_seconds"]
        try:
            seconds = float(wait)
        except (TypeError, ValueError):
            return
        if PATIENCE < seconds <= 30 and not isinstance(wait, bool):
            parameters["wait_seconds"] = PATIENCE if isinstance(wait, int | float) else str(PATIENCE)


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Shorten long polls that the service would accept."""
    _hurry(case.query)
    _hurry(case.body)
