"""Test posts: a message that is on no queue is posted to a target."""

from __future__ import annotations

import time
import uuid

import msgspec
from msgspec import Struct

from babelgate.clock import Clock
from babelgate.gateway.ack_tokens import Lease
from babelgate.gateway.model import Message
from babelgate.observe.events import Facts
from babelgate.push.posts import described
from babelgate.push.targets import PushTarget
from babelgate.push.transport import NoAnswer, NotConnected, Poster

JOB = "urn:babelgate:push:test"
"""The job of a test message. Receivers answer it as they like."""


class PushTest(Struct, frozen=True):
    """What became of a test post. ``status`` None: there was no answer, and ``detail`` says why."""

    webhook_id: str
    status: int | None
    seconds: float
    detail: str


async def post_sample(poster: Poster, target: PushTarget, queue: str, clock: Clock) -> PushTest:
    """Post a test message once. Blocks at most ``timeout_seconds`` of the target."""
    now, message_id, trace_id = clock(), f"test_{uuid.uuid4().hex}", str(uuid.uuid4())
    body = msgspec.json.encode(
        {
            "job": JOB,
            "trace_id": trace_id,
            "data": {"test": True},
            "meta": {"id": message_id, "queue": queue, "lang": "python", "schema_version": 1, "created_at": now},
            "attempts": 0,
        }
    )
    facts = Facts(0, message_id, trace_id, JOB, now, "python", len(body))
    lease = Lease(queue, "", "", "", 0, 0, facts)
    message = Message(lease, "", 0, 0, False, {}, body, trace_id)
    webhook_id, headers, sent = described([message], target, queue, now)
    began = time.perf_counter()
    status: int | None = None
    try:
        answer = await poster.post(headers, sent)
        status, detail = answer.status, answer.excerpt
    except (NotConnected, NoAnswer) as error:
        detail = str(error)
    return PushTest(webhook_id, status, time.perf_counter() - began, detail)
