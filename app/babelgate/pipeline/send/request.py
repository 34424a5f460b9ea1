"""The request of a command that sends, and the run id derived from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from babelgate.pipeline.send.bodies import Changes
from babelgate.pipeline.send.gateway import Target


class SendRequest(NamedTuple):
    """The options of a command that sends. ``max_rate``: messages/s of all tasks together, None: no bound.
    ``without``: which of the columns ``headers`` and ``ordering_key`` are not sent."""

    job: str
    target: Target
    changes: Changes
    select: str | None = None
    column: str | None = None
    to_queue: str | None = None
    limit: int | None = None
    max_rate: float | None = None
    parallelism: int | None = None
    unknown: str = "stop"
    run_id: str | None = None
    give_up_seconds: float = 90.0
    dry_run: bool = False
    without: tuple[str, ...] = ()

    def identifying_options(self) -> dict[str, Any]:
        """The options that decide which messages are sent, and where; they are part of the run id."""
        # Only where they are given: a run that an older version has begun goes on.
        more: dict[str, Any] = {} if self.column is None else {"column": self.column}
        if self.without:
            more["without"] = sorted(self.without)
        return {
            "url": self.target.url.rstrip("/"),
            "select": self.select,
            "to_queue": self.to_queue,
            "limit": self.limit,
            **self.changes._asdict(),
            **more,
        }


def run_of(job: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> str:
    """The run id, 16 hex digits. It excludes the program version, so that an upgrade does not send a run again."""
    return _digest([job, digest_of(inputs), dict(options)])[:16]


def digest_of(inputs: Sequence[Any]) -> str:
    """The digest of JSON values, independent of their order."""
    return _digest(sorted(map(_digest, inputs)))


def _digest(value: Any) -> str:
    plain = json.loads(msgspec.json.encode(value))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
