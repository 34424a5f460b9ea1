"""Makes messages of deliveries: each with an ack token, and reported as delivered."""

from __future__ import annotations

from collections.abc import Sequence

from app.gateway.ack_tokens import Lease, TokenSealer
from app.gateway.model import Message
from app.gateway.receive import ReadyDelivery
from app.gateway.routing import Route
from app.observe.events import Event, Observe


class Deliverer:
    """Hands messages out for the process ``receiver``, its incarnation."""

    def __init__(self, sealer: TokenSealer, receiver: str, observe: Observe) -> None:
        self._sealer = sealer
        self._receiver = receiver
        self._observe = observe

    def hand_out(self, route: Route, deliveries: Sequence[ReadyDelivery], lease_seconds: float) -> list[Message]:
        """The messages of deliveries, at least one, whose leases have this duration."""
        messages = [self._sealed(route, each) for each in deliveries]
        self._observe(
            Event(
                "delivered",
                route.queue,
                route.broker,
                len(messages),
                messages=[each.facts for each in deliveries],
                bodies=[each.delivery.body for each in deliveries],
                lease_seconds=lease_seconds,
            )
        )
        return messages

    def _sealed(self, route: Route, ready: ReadyDelivery) -> Message:
        delivery, attempts, facts = ready.delivery, ready.attempts, ready.facts
        deadline = delivery.lease_expires_at
        lease = Lease(route.queue, route.broker, delivery.handle, self._receiver, deadline, attempts, facts)
        token, redelivered = self._sealer.seal(lease), delivery.redelivered or attempts > 0
        headers, properties = delivery.headers, delivery.properties
        return Message(
            lease, token, deadline, attempts, redelivered, headers, delivery.body, facts.trace_id, properties
        )
