"""Maps queue names to routes; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, NamedTuple

from babelgate.brokers.binding import Binding, NativeQueue
from babelgate.brokers.header_rules import header_refusal
from babelgate.brokers.parking import PREFIX, place_on
from babelgate.brokers.route import BrokerRoute
from babelgate.envelope.contract import Envelope, is_text
from babelgate.envelope.publication import MAX_PROBLEMS
from babelgate.errors import ConfigError, EnvelopeError, InvalidParameter, QueueNotFound, UnsupportedByBroker
from babelgate.gateway.limit_terms import QueueTerms
from babelgate.gateway.names import Pattern, Template, check_queue_name, is_queue_name
from babelgate.gateway.private_names import PROBE, PrivateNames
from babelgate.jsontext import is_encodable, pointer
from babelgate.privacy.protection import Protection
from babelgate.privacy.redaction import Redaction
from babelgate.runtime.cache import Cache

SchemaMode = Literal["off", "warn", "enforce"]

_ROUTES_BYTES = 32 * 1024 * 1024
ROUTE_BYTES = 4_100
"""Most bytes of a remembered route, with the names and declarations of any binding."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How a queue treats its messages. Durations in seconds; ``None`` means for ever.

    ``backoff_seconds``: the delay after the 1st, 2nd … failed attempt, the last repeats; empty means at once.
    ``ordering_key``: what becomes of a message with a key that the broker cannot keep; ``expired``: of one past the
    time to live of its own or of the queue; ``schema``: of a published one whose data does not match the schema of its
    job, with ``schema_on_receive`` also of a received one. ``limits``: None for none. ``redaction``: what people do not
    see. ``encrypt``: bodies in files of the gateway are encrypted. ``protection``: of bodies in the journal.
    """

    lease_seconds: float = 60
    max_attempts: int = 10
    backoff_seconds: tuple[float, ...] = ()
    ttl_seconds: float | None = None
    dead_letter_retention_seconds: float | None = None
    ordering_key: Literal["refuse", "ignore"] = "refuse"
    expired: Literal["dead_letter", "drop"] = "dead_letter"
    limits: QueueTerms | None = None
    schema: SchemaMode = "off"
    schema_on_receive: bool = False
    redaction: Redaction | None = None
    encrypt: bool = False
    protection: Protection | None = None

    def backoff(self, attempts: int) -> float:
        """The delay before the next delivery after ``attempts`` (1-based) failed ones."""
        delays = self.backoff_seconds or (0,)
        return delays[min(max(attempts, 1), len(delays)) - 1]

    def has_expired(self, created_at: int | None, now: int) -> bool:
        """Whether a message is older than ``ttl_seconds`` at ``now`` (Unix ms); False if ``created_at`` is unknown."""
        return self.ttl_seconds is not None and created_at is not None and now - created_at > self.ttl_seconds * 1000


@dataclass(frozen=True)
class Route(BrokerRoute):
    """Where a queue's messages live, and its policy.

    ``configured_name``: the route's ``native_name`` for this queue, to which the binding may have added a prefix.
    """

    policy: Policy
    configured_name: str

    def adopt(self, other: Route) -> None:
        """Treat the messages of the queue as ``other``, which leads to the same native queue, from now on: only a
        reload of the configuration does."""
        for name in ("policy", "native", "parking"):
            object.__setattr__(self, name, getattr(other, name))

    def leads_where(self, other: Route) -> bool:
        """Whether both routes lead to one native queue, where some bodies may be encrypted and others not."""
        same = replace(other.native, encrypted=self.native.encrypted)
        return self.binding is other.binding and self.native == same

    def check_delay(self, delay_seconds: float, option: str = "delay_seconds") -> None:
        """Raise InvalidParameter or UnsupportedByBroker (with ``maximum``) for a delay of a publish that the broker
        cannot keep. ``option``: the option of the message that asks for it."""
        self._check_delay(delay_seconds, self.capabilities.max_delay_seconds, option)

    def check_retry_delay(self, delay_seconds: float) -> None:
        """The same for the delay of a nack."""
        self._check_delay(delay_seconds, self.capabilities.max_retry_delay_seconds)

    def _check_delay(self, delay_seconds: float, maximum: float | None, option: str = "delay_seconds") -> None:
        if not 0 <= delay_seconds < math.inf:
            raise InvalidParameter(name="delay_seconds", reason="must be 0 or more")
        if maximum is not None and delay_seconds > maximum:
            raise UnsupportedByBroker(
                code="delay_too_long",
                pointer=f"/{option}",
                reason=f"The broker {self.broker!r} delays by at most {maximum:.15g} s, not {delay_seconds:.15g} s.",
                maximum=maximum,
            )

    def check_ordering_key(self, ordering_key: str) -> str | None:
        """The key to send; None if the broker keeps no order and the policy ignores keys.

        A queue that is first in, first out keeps the order of every key. Raises InvalidParameter for a blank key, and
        UnsupportedByBroker where the broker keeps no order.
        """
        if not is_text(ordering_key):
            raise InvalidParameter(name="ordering_key", reason="must not be blank")
        if self.capabilities.ordering != "none":
            return ordering_key
        if self.policy.ordering_key == "ignore":
            return None
        raise UnsupportedByBroker(
            code="ordering_unsupported",
            pointer="/ordering_key",
            reason=f"The queue {self.queue!r} on the broker {self.broker!r} keeps no order of messages. Leave out "
            "ordering_key, or set ordering_key: ignore for the route.",
        )

    def check_priority(self, ordering_key: str | None) -> None:
        """Raise UnsupportedByBroker if messages have no priorities, or one with this key to send has none."""
        if not self.capabilities.priorities:
            raise UnsupportedByBroker(
                code="priority_unsupported",
                pointer="/priority",
                reason=f"Messages of the queue {self.queue!r} have no priorities on the broker {self.broker!r}.",
            )
        if ordering_key is not None:
            raise UnsupportedByBroker(
                code="priority_unsupported",
                pointer="/priority",
                reason="A message with an ordering_key has no priority: it would overtake others of its key.",
            )

    def check_ttl(self) -> None:
        """Raise UnsupportedByBroker if a single message cannot have a time to live of its own."""
        if not self.capabilities.headers:
            raise UnsupportedByBroker(
                code="ttl_unsupported",
                pointer="/ttl_seconds",
                reason=f"Messages of the queue {self.queue!r} carry no native headers on the broker {self.broker!r}, "
                "and so no time to live of their own. Set ttl_seconds of the route.",
            )

    def check_headers(self, headers: Mapping[str, str]) -> None:
        """Raise UnsupportedByBroker for headers of a publish that the broker cannot carry."""
        maximum = self.capabilities.max_headers
        if not self.capabilities.headers:
            raise UnsupportedByBroker(
                code="headers_unsupported",
                pointer="/headers",
                reason=f"Messages of the queue {self.queue!r} carry no native headers on the broker {self.broker!r}.",
            )
        if maximum is not None and len(headers) > maximum:
            raise UnsupportedByBroker(
                code="too_many_headers",
                pointer="/headers",
                reason=f"The broker {self.broker!r} carries at most {maximum} headers of a message, not "
                f"{len(headers)}.",
                maximum=maximum,
            )
        if (refusal := self.capabilities.header_rules.refusal(headers)) is not None:
            name, why = refusal
            place = "/headers" if name is None else pointer("headers", name)
            raise header_refusal(self.broker, place, why)

    def read_broker_properties(
        self, given: Mapping[str, Any], delay_seconds: float | None, ordering_key: str | None
    ) -> Mapping[str, Any]:
        """The broker properties ``given``, as the binding has read them. The other arguments are those of the message.

        Raises UnsupportedByBroker where messages have none, and EnvelopeError for those that the binding refuses.
        """
        rules = self.capabilities.broker_properties
        if problems := list(islice(rules.problems(given, delay_seconds, ordering_key), MAX_PROBLEMS)):
            raise EnvelopeError(problems)
        name = next((name for name, value in given.items() if value is not None), None)
        if name is not None and not rules:
            shown = name if is_encodable(name) else "of this name"
            raise UnsupportedByBroker(
                code="broker_property_unsupported",
                pointer=pointer("broker_properties", *([name] if shown is name else [])),
                reason=f"Messages of the queue {self.queue!r} have no broker property {shown} on the broker "
                f"{self.broker!r}.",
            )
        return rules.read(given)

    def check_properties(self, envelope: Envelope, maximum: int) -> None:
        """Raise UnsupportedByBroker for a ``job`` or ``trace_id`` of more than ``maximum`` bytes of UTF-8."""
        for name, value in (("job", envelope.job), ("trace_id", envelope.trace_id)):
            # A character has at most four bytes.
            if len(value) * 4 > maximum and (length := len(value.encode())) > maximum:
                raise UnsupportedByBroker(
                    code=f"{name}_too_long",
                    pointer=envelope.placed(f"/{name}"),
                    reason=f"{name} has {length} bytes. The broker {self.broker!r} keeps it as a property of the "
                    f"message, too, which has at most {maximum} bytes.",
                    maximum=maximum,
                )

    def lease_seconds(self, lease_seconds: float | None) -> float:
        """The lease duration to request; ``None``: the policy's.

        Raises InvalidParameter, or UnsupportedByBroker with ``maximum``.
        """
        if lease_seconds is None:
            return self.policy.lease_seconds
        maximum = self.capabilities.max_lease_seconds
        if not 0 < lease_seconds < math.inf:
            raise InvalidParameter(name="lease_seconds", reason="must be more than 0")
        if lease_seconds > maximum:
            raise UnsupportedByBroker(
                code="lease_too_long",
                pointer="/lease_seconds",
                reason=f"The broker {self.broker!r} leases for at most {maximum:.15g} s, not {lease_seconds:.15g} s.",
                maximum=maximum,
            )
        return lease_seconds


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the configured routes: a queue name or pattern, and what a match gets.

    ``native_name`` may hold ``{queue}``; ``options`` are the binding's own and were validated at start-up. ``parking``:
    the broker on which messages wait whose delay is too long for ``binding``. ``address``: as of :class:`BrokerRoute`.
    """

    match: str
    binding: Binding
    policy: Policy = Policy()
    native_name: str = "{queue}"
    options: Mapping[str, object] | None = None
    parking: Binding | None = None
    address: str = ""

    def route(self, queue: str) -> Route:
        """The route of a queue that this rule matches. Raises ConfigError for an invalid option."""
        native = self.native(queue)
        capabilities, place = self.binding.capabilities(native), None
        if self.parking is not None:
            place, capabilities = place_on(self.parking, queue, self.binding, capabilities)
            place = replace(place, native=replace(place.native, encrypted=self.policy.encrypt))
        name, address = self._name(queue), self.address
        return Route(queue, self.binding, native, capabilities, self.policy, name, parking=place, address=address)

    def native(self, queue: str) -> NativeQueue:
        """The queue at its broker. Raises as :meth:`route`."""
        native = self.binding.native_queue(self._name(queue), self.options or {})
        if native.name.startswith(PREFIX):
            raise ConfigError(key="native_name", reason=f"names that begin with {PREFIX} are those of parking queues")
        return replace(native, encrypted=True) if self.policy.encrypt else native

    def _name(self, queue: str) -> str:
        return self.native_name.replace("{queue}", queue)


class _NativeNames(NamedTuple):
    """The queues with an exact name by broker and native name, and the forms of the native names of the others."""

    exact: Mapping[tuple[str, str], tuple[str, NativeQueue]]
    forms: Sequence[tuple[Rule, Template]]


class Router:
    """Finds the route of a queue: exact names first, then patterns in order, then the default. Only :meth:`switch`
    changes it."""

    def __init__(self, rules: Sequence[Rule], default: Rule | None = None) -> None:
        self.rules = tuple(rules)
        self.default = default
        self._exact = {rule.match: rule for rule in rules if "*" not in rule.match}
        self._patterns = [(Pattern(rule.match), rule) for rule in rules if "*" in rule.match]
        self._routes: Cache[str, Route] = Cache(_ROUTES_BYTES, ROUTE_BYTES)
        self._native: _NativeNames | None = None
        self._private = PrivateNames([*self.rules, default])

    def switch(self, other: Router, kept: Iterable[Route]) -> None:
        """Route as ``other`` from now on. ``kept``: the routes in use that ``other`` would make again."""
        self.rules, self.default, self._private = other.rules, other.default, other._private
        self._exact, self._patterns, self._native = other._exact, other._patterns, None
        self._routes.clear()
        for route in kept:
            self._routes.keep(route.queue, route)

    def remembered(self) -> list[Route]:
        """The routes that were looked up, as far as they are remembered."""
        return [route for queue in self._routes if (route := self._routes.get(queue))]

    def route(self, queue: str) -> Route:
        """The route of ``queue``.

        Raises InvalidParameter for a bad name, UnsupportedByBroker for one that the broker cannot have, QueueNotFound
        without a route.
        """
        found = self._routes.get(queue)
        if found is None:
            check_queue_name(queue)
            rule = self.rule(queue)
            if rule is None:
                raise QueueNotFound(queue=queue)
            try:
                found = rule.route(queue)
            except ConfigError as error:
                # The options were validated at start-up; the names that a pattern or the default matches were not.
                if error.key != "native_name":
                    raise
                raise UnsupportedByBroker(
                    code="queue_name_unsupported",
                    pointer="",
                    reason=f"The broker {rule.binding.name!r} cannot have a queue of this name: {error.reason}.",
                ) from None
            if queue not in self._exact:
                self._private.check(self.rule, rule, found.native.name)
            self._routes.keep(queue, found)
        return found

    def rule(self, queue: str) -> Rule | None:
        """The rule that routes ``queue``; for a pattern, the first rule that matches all names of the pattern."""
        return self._exact.get(queue) or next((r for p, r in self._patterns if p.matches(queue)), self.default)

    def queue_of(self, binding: Binding, native_name: str) -> str | None:
        """The queue that is routed to the native queue of this name; None where no route leads to it.

        If several do, it is the first in the order of look-up.
        """
        found = self.found(binding, native_name)
        return None if found is None else found[0]

    def found(self, binding: Binding, native_name: str) -> tuple[str, NativeQueue] | None:
        """:meth:`queue_of` with the native queue.

        Nothing is remembered: a broker may list any number of queues, and they would take the places of the routes
        that are in use.
        """
        names = self._native_names()
        found = names.exact.get((binding.name, native_name))
        if found is not None:
            return found
        for rule, form in names.forms:
            queue = form.inserted(native_name) if rule.binding is binding else None
            if queue is not None and self.rule(queue) is rule and is_queue_name(queue):
                try:
                    native = rule.native(queue)
                except ConfigError as error:
                    if error.key != "native_name":
                        raise
                    continue
                if native.name == native_name:
                    return queue, native
        return None

    def dead_letters(self, binding: Binding) -> frozenset[str]:
        """The native names of the dead-letter queues of the queues that are configured by name."""
        exact = self._native_names().exact.items()
        return frozenset(
            native.dead_letters
            for (broker, _), (_, native) in exact
            if broker == binding.name and native.dead_letters is not None
        )

    def _native_names(self) -> _NativeNames:
        if self._native is None:
            natives = ((queue, rule, rule.native(queue)) for queue, rule in self._exact.items())
            exact = {(rule.binding.name, native.name): (queue, native) for queue, rule, native in natives}
            many = [rule for _, rule in self._patterns] + ([self.default] if self.default is not None else [])
            forms = ((rule, _form(rule)) for rule in many)
            self._native = _NativeNames(exact, [(rule, form) for rule, form in forms if form is not None])
        return self._native

    def parking_places(self) -> list[Binding]:
        """The brokers on which messages of any queue are parked."""
        return list({r.parking.name: r.parking for r in (*self.rules, self.default) if r and r.parking}.values())

    @property
    def retains(self) -> bool:
        """Whether any route has a retention of dead letters."""
        return any(r and r.policy.dead_letter_retention_seconds is not None for r in (*self.rules, self.default))

    def configured(self) -> list[str]:
        """The exact queue names of the configuration, in order."""
        return list(self._exact)


def _form(rule: Rule) -> Template | None:
    """The form of the native names of the queues of ``rule``; None if all have the same name."""
    try:
        parts = rule.native(PROBE).name.split(PROBE)
    except ConfigError:
        # A template that leaves room for very short names only.
        return None
    return Template(parts) if len(parts) > 1 else None
