"""Examples of the answers about dead letters and redrives, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

LETTER_ID = "5f2b8c0d9e1a47368b7d2c4f6a0e1b93"
JOB_ID = "019a3c5e7f10a1b2c3d4"
_ID = "7c1f0a52-6f0e-4a55-9d0d-0a6c1f6f2b11"
_TRACE_ID = "0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10"
_FAILED_AT = 1_790_000_060_000
_FAILURE: Json = {
    "letter_id": LETTER_ID,
    "id": None,
    "code": "invalid_json",
    "detail": "The body is not one JSON object: it is not an object.",
}
_COUNTS: Json = {"scanned": 120, "matched": 100, "redriven": 99, "failed": 1, "complete": False}

_LETTER: Json = {
    "letter_id": LETTER_ID,
    "id": _ID,
    "job": "urn:babel:emails:welcome",
    "trace_id": _TRACE_ID,
    "reason": "failed",
    "error": "no such mailbox",
    "failed_at": _FAILED_AT,
    "attempts": 3,
    "headers": {},
    "record": {
        "job": "urn:babel:emails:welcome",
        "trace_id": _TRACE_ID,
        "data": {"to": "ada@example.com"},
        "meta": {"id": _ID, "queue": "emails", "lang": "go", "schema_version": 1, "created_at": 1_790_000_000_000},
        "attempts": 3,
        "dead_letter": {
            "reason": "failed",
            "error": "no such mailbox",
            "exception": None,
            "failed_at": _FAILED_AT,
            "original_queue": "emails",
            "attempts": 3,
            "lang": "python",
        },
    },
    "record_base64": None,
}
_RESULT: Json = {**_COUNTS, "errors": [_FAILURE], "errors_omitted": 0, "dry_run": False}
_REDRIVEN: Json = {
    "letter_id": LETTER_ID,
    "id": _ID,
    "to_queue": "emails",
    "edited": True,
    "forced": False,
    "removed": True,
}
_REMOVAL: Json = {"removed": 1, "failed": 0, "results": [{"letter_id": LETTER_ID, "status": 200}]}
_PARTIAL_REMOVAL: Json = {
    "removed": 0,
    "failed": 1,
    "results": [
        {
            "letter_id": LETTER_ID,
            "status": 404,
            "code": "unknown_dead_letter",
            "detail": f"The queue emails has no dead letter {LETTER_ID}. It may have been redriven or removed.",
            "retryable": False,
        }
    ],
}
_STARTED: Json = {
    "scanned": 0,
    "matched": 0,
    "redriven": 0,
    "failed": 0,
    "complete": False,
    "errors": [],
    "errors_omitted": 0,
    "id": JOB_ID,
    "queue": "emails",
    "state": "running",
    "to_queue": "emails",
    "limit": None,
    "force": False,
    "per_second": 50.0,
    "error": None,
    "started_at": 1_790_000_100_000,
    "updated_at": 1_790_000_100_000,
}
_JOB: Json = {**_STARTED, **_COUNTS, "errors": [_FAILURE], "state": "completed", "updated_at": 1_790_000_102_000}
_CANCELLED: Json = {**_JOB, "redriven": 40, "matched": 40, "failed": 0, "errors": [], "state": "cancelled"}

EXAMPLES: dict[str, dict[str, Json]] = {
    "list_dead_letters": {"200": {"dead_letters": [_LETTER], "next_cursor": None}},
    "get_dead_letter": {"200": _LETTER},
    "delete_dead_letter": {"200": {"removed": 1}},
    "delete_dead_letters": {"200": _REMOVAL, "207": _PARTIAL_REMOVAL},
    "purge_dead_letters": {"200": {"removed": 0, "matched": 120, "dry_run": True}},
    "redrive_dead_letter": {"200": _REDRIVEN},
    "redrive_dead_letters": {"200": _RESULT, "202": _STARTED},
    "list_redrives": {"200": {"redrives": [_JOB]}},
    "get_redrive": {"200": _JOB},
    "cancel_redrive": {"200": _CANCELLED},
    "resume_redrive": {"200": _STARTED},
}
"""The answers by operation and status. FastAPI would leave out their null members."""
