"""Keeps queues with redaction or encryption from being reached by other names, under which they would have neither."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Protocol

from babelgate.brokers.binding import Binding, NativeQueue
from babelgate.errors import ConfigError, UnsupportedByBroker
from babelgate.gateway.names import Template, is_queue_name

PROBE = "queue-probe"
"""A name that is legal on every broker. Where it stands in a native name, the queue's own name stands."""


class _Policy(Protocol):
    @property
    def redaction(self) -> object: ...

    @property
    def encrypt(self) -> bool: ...


class _NamedRule(Protocol):
    """What is read of a rule of the router."""

    @property
    def match(self) -> str: ...

    @property
    def binding(self) -> Binding: ...

    @property
    def policy(self) -> _Policy: ...

    def native(self, queue: str, /) -> NativeQueue: ...


class PrivateNames:
    """The native names of the queues of a configuration whose policy has ``redaction`` or ``encrypt``, with those of
    their dead letters and delayed messages. Immutable."""

    def __init__(self, rules: Iterable[_NamedRule | None]) -> None:
        """``rules``: all of the configuration."""
        self._rules = [rule for rule in rules if rule and (rule.policy.redaction or rule.policy.encrypt)]

    def check(self, rule_of: Callable[[str], object], rule: _NamedRule, name: str) -> None:
        """Raise UnsupportedByBroker if the native ``name``, which a pattern or the default, ``rule``, has made, is one
        of a queue with another rule. ``rule_of``: the rule of a queue."""
        if not self._rules:
            return
        owner = self._exact.get((rule.binding.name, name))
        if owner is None:
            for other, form in self._forms:
                queue = form.inserted(name) if other.binding is rule.binding and other is not rule else None
                if queue is not None and is_queue_name(queue) and rule_of(queue) is other:
                    owner = other
                    break
        if owner is not None:
            raise UnsupportedByBroker(
                code="queue_name_unsupported",
                pointer="",
                reason=f"On the broker {rule.binding.name!r} this name leads to the messages of another queue, which "
                "are redacted or encrypted.",
            )

    @cached_property
    def _exact(self) -> dict[tuple[str, str], _NamedRule]:
        exact = (rule for rule in self._rules if "*" not in rule.match)
        return {(rule.binding.name, name): rule for rule in exact for name in _names(rule, rule.match)}

    @cached_property
    def _forms(self) -> Sequence[tuple[_NamedRule, Template]]:
        parts = ((rule, name.split(PROBE)) for rule in self._rules for name in _names(rule, PROBE))
        return [(rule, Template(each)) for rule, each in parts if len(each) > 1]


def _names(rule: _NamedRule, queue: str) -> Sequence[str]:
    """The native names of the messages of ``queue``; none if the broker can have none for it."""
    try:
        native = rule.native(queue)
    except ConfigError:
        return ()
    return [name for name in (native.name, native.dead_letters, *native.delayed) if name is not None]
