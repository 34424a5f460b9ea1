"""Checks the configured routes against the capabilities of their brokers, at start-up."""

from __future__ import annotations

from babelgate.brokers.binding import DeadStore, PublishesDeadLetters
from babelgate.brokers.parking import cannot_park
from babelgate.brokers.ports import ConnectionBroker, LeasingBroker
from babelgate.errors import ConfigError
from babelgate.gateway.routing import Route, Router, Rule

SAMPLE = "sample"
"""Name of a sample queue for a pattern or the default route."""


def check(router: Router) -> list[tuple[str, Route]]:
    """The configured rules in look-up order, each as its configuration key and its route.

    For a pattern or the default the route is that of a sample queue. Raises ConfigError naming the key of an option
    that the binding does not know, of a capability that the broker lacks, or of a second route to one native queue.
    """
    exact = [rule for rule in router.rules if "*" not in rule.match]
    patterns = [rule for rule in router.rules if "*" in rule.match]
    keyed = [(f"queues.{rule.match}", rule) for rule in [*exact, *patterns]]
    if router.default is not None:
        keyed.append(("default", router.default))
    routes = [(key, _route(key, rule)) for key, rule in keyed]
    taken: dict[tuple[str, str], str] = {}
    for key, route in routes[: len(exact)]:
        native = (route.broker, route.native.name)
        if native in taken:
            reason = f"{taken[native]} already uses the native queue {route.native.name!r} of {route.broker!r}"
            raise ConfigError(key=f"{key}.native_name", reason=reason)
        taken[native] = key
    return routes


def check_moves(before: Router, after: Router) -> None:
    """Raise ConfigError for a change of routes that a running gateway cannot make: other options or parking of a queue
    that stays where it is, and the native queue that another queue had until now, because messages of both would be in
    it."""
    had = {(rule.binding.name, rule.native(rule.match).name): rule for rule in before.rules if "*" not in rule.match}
    for rule in after.rules:
        if "*" not in rule.match:
            was = had.get((rule.binding.name, name := rule.native(rule.match).name))
            if was is not None and was.match != rule.match and was.address == rule.address and after.rule(was.match):
                reason = (
                    f"the native queue {name!r} was that of the queue {was.match!r} until now, which needs a restart"
                )
                raise ConfigError(key=f"queues.{rule.match}.native_name", reason=reason)
    for rule in after.rules:
        _check_move(f"queues.{rule.match}", before.rule(rule.match), rule)
    if after.default is not None:
        _check_move("default", before.default, after.default)
    for rule in before.rules:
        if (now := after.rule(rule.match)) is not None:
            _check_move("default" if now is after.default else f"queues.{now.match}", rule, now)


def _check_move(key: str, before: Rule | None, after: Rule) -> None:
    if before is None or _place(before) != _place(after):
        return
    old, new = dict(before.options or {}), dict(after.options or {})
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    # Parked messages follow to another connection.
    if (before.parking and before.parking.name) != (after.parking and after.parking.name):
        changed.append("parking")
    if changed:
        name = after.binding.name
        reason = f"changes for queues that stay on the broker {name!r}, and needs a restart; nothing of it is applied"
        raise ConfigError(key=f"{key}.{changed[0]}", reason=reason)


def _place(rule: Rule) -> tuple[str, str, str]:
    """Where the rule leads, over whichever connection."""
    return rule.binding.name, rule.address, rule.native_name


def _route(key: str, rule: Rule) -> Route:
    many = "*" in rule.match or key == "default"
    if many and "{queue}" not in rule.native_name:
        raise ConfigError(
            key=f"{key}.native_name",
            reason="must contain {queue}; otherwise all its queues would share one native queue",
        )
    try:
        route = rule.route(rule.match.replace("*", SAMPLE) if key != "default" else SAMPLE)
    except ConfigError as error:
        raise ConfigError(key=f"{key}.{error.key}", reason=error.reason) from None
    if missing := _missing_capability(route):
        raise ConfigError(key=f"{key}.broker", reason=f"the broker {route.broker!r} {missing}")
    if rule.parking is not None and (reason := cannot_park(rule.parking)) is not None:
        raise ConfigError(key=f"{key}.parking", reason=f"the broker {rule.parking.name!r} {reason}")
    capabilities, policy, name = route.capabilities, route.policy, route.broker
    if policy.lease_seconds > capabilities.max_lease_seconds:
        configured, maximum = policy.lease_seconds, capabilities.max_lease_seconds
        reason = f"{configured:.15g} is more than the {maximum:.15g} seconds that {name!r} leases for"
        raise ConfigError(key=f"{key}.lease_seconds", reason=reason)
    longest = max(policy.backoff_seconds, default=0)
    if capabilities.max_retry_delay_seconds is not None and longest > capabilities.max_retry_delay_seconds:
        reason = (
            f"{longest:.15g} is more than the {capabilities.max_retry_delay_seconds:.15g} seconds that {name!r} "
            "delays by"
        )
        raise ConfigError(key=f"{key}.backoff_seconds", reason=reason)
    if policy.dead_letter_retention_seconds is not None and not isinstance(route.binding, DeadStore):
        reason = f"the broker {name!r} does not let its dead letters be read"
        raise ConfigError(key=f"{key}.dead_letter_retention_seconds", reason=reason)
    if policy.expired == "drop" and policy.ttl_seconds is None and not capabilities.headers:
        reason = f"no message expires here: the route has no ttl_seconds, and {name!r} accepts none of a message"
        raise ConfigError(key=f"{key}.expired", reason=reason)
    return route


def _missing_capability(route: Route) -> str | None:
    """The capability that the broker lacks and that the gateway cannot replace; None if there is none.

    A copy needs the body, so the gateway replaces nothing where the broker keeps the leases.
    """
    capabilities, binding = route.capabilities, route.binding
    if capabilities.lease_bound_to is None:
        if not capabilities.native_release:
            return "keeps its leases but does not count failed deliveries"
        if not isinstance(binding, LeasingBroker):
            return "keeps its leases but does not extend them"
    elif not isinstance(binding, ConnectionBroker):
        return "leaves its leases to the gateway but does not report which deliveries are outstanding"
    if not route.dead_letters_natively and not isinstance(binding, PublishesDeadLetters):
        return "has no dead-letter queue"
    return None
