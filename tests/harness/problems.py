"""Checks the shape of error answers."""

from __future__ import annotations

from typing import Any

import httpx

MEMBERS = ["type", "title", "status", "detail", "instance", "code", "retryable", "trace_id", "errors"]

PLACED = {"invalid_parameter", "invalid_filter", "invalid_idempotency_key"}
"""Codes of what always has a place in the request: a member of the body, a parameter or a header."""


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem of ``response``, after checking its shape, status and code."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    body: dict[str, Any] = response.json()
    assert (response.status_code, body["code"]) == (status, code), response.text
    assert list(body)[: len(MEMBERS)] == MEMBERS
    assert body["status"] == status
    assert body["type"] == f"urn:babelgate:problem:{code}"
    assert body["instance"].startswith("/")
    assert isinstance(body["retryable"], bool)
    for defect in body["errors"]:
        assert {"pointer", "code", "detail"} <= defect.keys() <= {"pointer", "code", "detail", "parameter", "header"}
    assert body["errors"] or code not in PLACED
    assert "Traceback" not in response.text
    assert response.headers["x-request-id"]
    return body
