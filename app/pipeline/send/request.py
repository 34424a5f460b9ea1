"""What a command that sends was asked for, and the name of the run that this makes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from app.pipeline.send.bodies import Changes
from app.pipeline.send.gateway import Target


class SendRequest(NamedTuple):
    """What a command was asked for. ``target``: URL and token; rates in messages, times in seconds."""

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

    def identifying_options(self) -> dict[str, Any]:
        """The options that decide what is sent, and where to."""
        more = {} if self.column is None else {"column": self.column}
        return {
            "url": self.target.url.rstrip("/"),
            "select": self.select,
            "to_queue": self.to_queue,
            "limit": self.limit,
            **self.changes._asdict(),
            **more,
        }


def run_of(job: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> str:
    """16 hex digits. The version of this program is no part: an upgrade must not send a run a second time."""
    return _digest([job, digest_of(inputs), dict(options)])[:16]


def digest_of(inputs: Sequence[Any]) -> str:
    """Of inputs, in whatever order: anything that JSON holds."""
    return _digest(sorted(map(_digest, inputs)))


def _digest(value: Any) -> str:
    plain = json.loads(msgspec.json.encode(value))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
