"""Hooks of the schemathesis run: valid requests stay valid, but nobody waits: not half a minute for a message, and not
a random number of days until one is due, which would leave the links from publish over receive to ack without any.

The links from a receive to a settle get the body that the document cannot give them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import schemathesis

MEMBERS = {"wait_seconds": (0.02, 30), "delay_seconds": (0, 31_536_000)}
"""What is shortened: to the first number, where it is over it and up to the second."""

OPTIONAL = {
    "receive_messages",
    "redrive_dead_letters",
    "redrive_dead_letter",
    "purge_queue",
    "purge_dead_letters",
    "pause_queue",
}
"""Operations whose body may be left out. They take ``null`` for none, because generated clients send it then; in the
document it would make a class of its own in each of these clients."""

OPTIONS = ("trace_id", "delay_seconds", "ordering_key", "headers", "idempotency_key", "broker_properties")
"""Members of a draft or an entry that take ``null`` for none, which the document leaves out for the same reason."""

CHAINED = {"wait_seconds": (0.5, 30), "lease_seconds": (60, 31_536_000)}
"""What else is shortened in a chain of calls: a busy server needs longer than 20 ms, and brokers bound their leases."""

REFUSED = ("broker_properties", "headers", "ordering_key")
"""Members of a publish that a broker may refuse, each by rules of its own. A chain would end at its first call."""

CHAIN_QUEUE = "chained"
"""The queue of all chains of calls. No other call receives from it, and none purges, pushes or pauses it: a list of
queues tells its name, and the generator uses it again."""

TOKENS: list[str] = []
"""Ack tokens that chains have received and not used yet."""

REPEATS = [None] * 100
"""One is taken for each repeated receive: a group that is never ready uses them up."""

SETTLES = {"ack_messages", "nack_messages", "reject_messages", "extend_messages"}


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Put the received token into the body of a link: openapi-generator takes no body of a link but a string."""
    for item in raw_schema["paths"].values():
        for operation in (item[method] for method in ("get", "post") if method in item):
            links = (answer.get("links", {}) for answer in operation["responses"].values())
            for link in (link for named in links for link in named.values() if link["operationId"] in SETTLES):
                link["requestBody"] = {"ack_tokens": ["$response.body#/messages/0/ack_token"]}


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Send no ``null`` where it is accepted for no body, or for no member."""
    if case.body is None:
        return case.operation.definition.raw.get("operationId") not in OPTIONAL
    bodies = (case.body, *(case.body if isinstance(case.body, list) else ()))
    return not any(body.get(name, 0) is None for body in bodies if isinstance(body, dict) for name in OPTIONS)


def _objects(case: Any) -> Iterator[dict[str, Any]]:
    """Where such members stand: the query, the body, the entries of a batch."""
    for found in (case.query, case.body, *(case.body if isinstance(case.body, list) else ())):
        if isinstance(found, dict):
            yield found


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Shorten waits and delays that the service would accept. Make valid chains of calls meet: they publish to one
    queue, without what brokers may refuse, receive from it, and settle what was received."""
    shortest = dict(MEMBERS)
    if case.path_parameters.get("queue") == CHAIN_QUEUE:
        case.path_parameters["queue"] = "listed"
    if case.operation.definition.raw["operationId"] == "pause_queue" and case.meta.generation.mode.is_positive:
        # Elsewhere nothing could be received any more.
        case.path_parameters["queue"] = "paused"
    elif case.meta.phase.name == "stateful" and case.meta.generation.mode.is_positive:
        shortest |= CHAINED
        if "queue" in case.path_parameters:
            takes = case.operation.definition.raw["operationId"].startswith(("purge_", "put_push"))
            case.path_parameters["queue"] = "purged" if takes else CHAIN_QUEUE
        if TOKENS and case.operation.definition.raw["operationId"] in SETTLES and isinstance(case.body, dict):
            # Where a link leads from an empty receive, its body would have an invented token.
            case.body["ack_tokens"] = [TOKENS.pop()]
        case.headers.pop("BrokerProperties", None)
        for members in _objects(case):
            for name in REFUSED:
                members.pop(name, None)
    for members in _objects(case):
        for name, (least, most) in shortest.items():
            value: Any = members.get(name)
            if isinstance(value, bool):
                continue
            try:
                seconds = float(value)
            except (TypeError, ValueError):
                continue
            if least < seconds <= most:
                members[name] = str(least) if isinstance(value, str) else least


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Repeat a receive while the consumer group of Kafka is joined, as its 503 asks a client to. Keep the ack tokens of
    the messages that a chain has received."""
    is_receive = case.operation.definition.raw["operationId"].startswith("receive_messages")
    if is_receive and response.status_code == 503 and "the consumer group" in response.text and REPEATS:
        REPEATS.pop()
        again = case.call()
        for name in response.__slots__:
            setattr(response, name, getattr(again, name))
        return
    if is_receive and case.path_parameters.get("queue") == CHAIN_QUEUE and response.status_code == 200:
        TOKENS.extend(message["ack_token"] for message in response.json().get("messages", ()))
