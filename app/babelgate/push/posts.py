"""What is posted for a message: its headers and its body."""

from __future__ import annotations

from babelgate.gateway.model import Message
from babelgate.push.bodies import FORMATS
from babelgate.push.signing import signatures, webhook_id
from babelgate.push.targets import PushTarget

Posted = tuple[str, list[tuple[str, str]], bytes]


def described(message: Message, target: PushTarget, queue: str, now: int) -> Posted:
    """The ``webhook-id`` of ``message``, the headers of its post at ``now`` (Unix ms), and the body."""
    given, body = FORMATS[target.body](message)
    identity = webhook_id(message.lease.facts.message_id or message.trace_id or "")
    headers = [
        *given,
        ("webhook-id", identity),
        ("webhook-timestamp", str(now // 1000)),
        ("webhook-signature", signatures(target.secrets, identity, now // 1000, body)),
        ("queue", queue),
        ("attempts", str(message.attempts)),
        *target.headers,
    ]
    job = message.lease.facts.job
    if job is not None and job.isascii() and job.isprintable():
        headers.append(("job", job))
    return identity, headers, body
