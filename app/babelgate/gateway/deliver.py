"""Makes messages of deliveries: each with an ack token, and reported as delivered."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from babelgate.gateway.ack_tokens import Lease, TokenSealer
from babelgate.gateway.inspection import ReadyDelivery
from babelgate.gateway.model import Message
from babelgate.gateway.routing import Route
from babelgate.observe.events import Event, Facts, Observe


class Deliverer:
    """Hands messages out for the process ``receiver``, its incarnation."""

    def __init__(self, sealer: TokenSealer, receiver: str, observe: Observe) -> None:
        self._sealer = sealer
        self._receiver = receiver
        self._observe = observe

    def hand_out(self, route: Route, deliveries: Sequence[ReadyDelivery], lease_seconds: float) -> list[Message]:
        """The messages of deliveries, at least one, whose leases have this duration."""
        messages: list[Message] = []
        facts: list[Facts] = []
        bodies: list[bytes] = []
        for each in deliveries:
            messages.append(self._sealed(route, each))
            facts.append(each.facts)
            bodies.append(each.delivery.body)
        count, queue, broker = len(messages), route.queue, route.broker
        told = Event(
            "delivered",
            queue,
            broker,
            count,
            messages=facts,
            bodies=bodies,
            lease_seconds=lease_seconds,
            carriers=messages,
        )
        self._observe(told)
        return messages

    def sticky(self, message: Message) -> Message:
        """``message`` with a token that any process forwards to this one, as long as it exists."""
        lease = replace(message.lease, sticky=True)
        return replace(message, lease=lease, ack_token=self._sealer.seal(lease))

    def _sealed(self, route: Route, ready: ReadyDelivery) -> Message:
        delivery, attempts, facts = ready.delivery, ready.attempts, ready.facts
        deadline = delivery.lease_expires_at
        to = route.queue, route.broker, delivery.handle, self._receiver
        lease = Lease(*to, deadline, attempts, facts, place=route.place)
        token, redelivered = self._sealer.seal(lease), delivery.redelivered or attempts > 0
        headers, properties = delivery.headers, delivery.properties
        key = delivery.ordering_key if route.capabilities.ordering == "key" else None
        return Message(
            lease, token, deadline, attempts, redelivered, headers, delivery.body, facts.trace_id, properties, key
        )
