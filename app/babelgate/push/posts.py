"""What is posted for messages: which of them together, the headers and the body."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence

from babelgate.gateway.model import Message
from babelgate.push.bodies import BATCH_TYPES, FORMATS, payload
from babelgate.push.signing import signatures, webhook_id
from babelgate.push.targets import PushTarget

_is_header_value = re.compile(r"[!-~]([ -~]{0,1022}[!-~])?").fullmatch
"""https://www.rfc-editor.org/rfc/rfc9110#section-5.5"""

Posted = tuple[str, list[tuple[str, str]], bytes]


def grouped(messages: Sequence[Message], most: int) -> Iterator[Sequence[Message]]:
    """``messages`` by post: at most ``most`` together. One that has failed before is alone, so that it makes others
    fail once at most. Those of one ordering key keep their order."""
    together: list[Message] = []
    for message in messages:
        if message.attempts == 0:
            together.append(message)
        if together and (len(together) == most or (message.attempts and message.ordering_key is not None)):
            yield together
            together = []
        if message.attempts:
            yield [message]
    if together:
        yield together


def described(messages: Sequence[Message], target: PushTarget, queue: str, now: int) -> Posted:
    """The ``webhook-id`` of the post of ``messages``, its headers at ``now`` (Unix ms), and its body.

    One message has its own id and its own headers, also in a list of one.
    """
    makes = FORMATS[target.body]
    if target.max_messages is None:
        (message,) = messages
        given, body = makes(message)
    else:
        given = [("content-type", BATCH_TYPES[target.body])]
        body = b"[" + b",".join(makes(message)[1] for message in messages) + b"]"
    ids = [_id(message) for message in messages]
    identity = webhook_id(ids[0] if len(ids) == 1 else "\n".join(ids))
    headers = [
        *given,
        ("webhook-id", identity),
        ("webhook-timestamp", str(now // 1000)),
        ("webhook-signature", signatures(target.secrets, identity, now // 1000, body)),
        ("queue", queue),
        ("attempts", str(messages[0].attempts)),
        *target.headers,
    ]
    job = messages[0].lease.facts.job
    if len(messages) == 1 and job is not None and _is_header_value(job):
        headers.append(("job", job))
    return identity, headers, body


def _id(message: Message) -> str:
    """The id of a message. One without an id is known by what does not change from attempt to attempt."""
    facts = message.lease.facts
    if facts.message_id:
        return facts.message_id
    found = hashlib.sha256(f"{message.trace_id} {facts.job} {facts.created_at} ".encode("utf-8", "surrogatepass"))
    found.update(payload(message))
    return found.hexdigest()[:40]
