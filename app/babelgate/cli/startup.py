"""The text that ``serve`` prints at its start, and the warnings and broker states that ``check-config`` shares."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from babelgate import __version__
from babelgate.cli.output import aligned, complain, heading

if TYPE_CHECKING:
    from babelgate.brokers.binding import Binding
    from babelgate.config.settings import Settings
    from babelgate.errors import BabelgateError
    from babelgate.gateway.routing import Route

MAX_ROUTES = 20
"""Routes in the summary; ``check-config`` prints all."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker at the start. ``down``: why it cannot be used, None when it is up. ``version``: of its server, if it
    reports one."""

    version: str | None = None
    down: BabelgateError | None = None
    warnings: Sequence[str] = field(default_factory=tuple)


def setting_warnings(settings: Settings, routes: Sequence[tuple[str, Route]]) -> list[str]:
    """The warnings that need no broker. ``routes``: each configured rule and its route."""
    from babelgate.clock import now_ms
    from babelgate.gateway.route_warnings import unused
    from babelgate.server.certificate import date_warnings

    found = []
    if settings.tls_cert is not None and settings.tls_key is not None:
        found += date_warnings(settings.tls_cert, settings.tls_key, now_ms())
    if settings.auth is None:
        found.append("no auth is configured: every program on this machine can use the gateway")
    elif settings.auth == "none" and not settings.is_loopback:
        found.append(f"auth: none allows everyone who can reach {settings.host}")
    if settings.default is None:
        found.append("there is no default: other queues than the listed ones are 404")
    by_broker = {route.broker: route for _, route in routes}
    found += [f"no queue is routed to the broker {name!r}" for name in settings.brokers if name not in by_broker]
    for route in by_broker.values():
        largest = route.capabilities.max_body_bytes
        if largest is not None and largest < settings.limits.max_message_bytes:
            found.append(f"limits.max_message_bytes is more than the {largest} bytes that {route.broker!r} accepts")
    return found + unused(key for key, _ in routes)


def broker_states(routes: Iterable[Route], embedded: frozenset[str] | None = None) -> dict[str, BrokerState]:
    """Open each broker of ``routes`` for a moment, all at once, and return their states by name.

    Raises ConfigError when a broker refuses its configuration, or one in ``embedded``, which is a file of this machine,
    cannot be opened. With None such a broker is down instead.
    """
    by_broker: dict[str, list[Route]] = {}
    for route in routes:
        by_broker.setdefault(route.broker, []).append(route)

    async def ask() -> list[BrokerState]:
        return list(await asyncio.gather(*(_state(each, embedded) for each in by_broker.values())))

    return dict(zip(by_broker, asyncio.run(ask()), strict=True))


async def _state(routes: Sequence[Route], embedded: frozenset[str] | None) -> BrokerState:
    from babelgate.brokers.binding import ReportsVersion
    from babelgate.errors import BabelgateError, BrokerUnavailable, ConfigError
    from babelgate.gateway.route_warnings import broker_warnings

    binding: Binding = routes[0].binding
    try:
        await binding.open()
        version = binding.server_version if isinstance(binding, ReportsVersion) else None
        return BrokerState(version, None, await broker_warnings(binding, routes))
    except BabelgateError as error:
        if embedded is not None and isinstance(error, ConfigError):
            raise
        if embedded is not None and binding.name in embedded and isinstance(error, BrokerUnavailable):
            reason = f"{error.reason}. End the program that uses the file, or set the URL of another file"
            raise ConfigError(key=f"brokers.{binding.name}.url", reason=reason) from None
        return BrokerState(down=error)
    finally:
        await binding.close()


def greet(url: str, settings: Settings) -> None:
    """Print example commands for publish, receive and ack on standard error; standard output is for the log."""
    for line in (f"babelgate {__version__} serves {url}   (docs: {url}/docs)", "", *_examples(url, settings), ""):
        complain(line)


def summarize(url: str, settings: Settings, routes: Sequence[tuple[str, Route]]) -> None:
    """Print on standard error what a person at a terminal needs: addresses, brokers, routes, warnings and examples.

    Opens the brokers for a moment. Raises ConfigError as :func:`broker_states`.
    """
    from babelgate.brokers.registry import driver

    embedded = frozenset(name for name, broker in settings.brokers.items() if driver(name, broker.url).embedded)
    states = broker_states((route for _, route in routes), embedded)
    warnings = setting_warnings(settings, routes)
    warnings += [f"{name}: {warning}" for name, state in states.items() for warning in state.warnings]
    addresses = [("API", url), ("docs", f"{url}/docs"), ("state", f"{url}/readyz?verbose")]
    if settings.has_console:
        addresses.insert(1, ("console", f"{url}/console"))
    if settings.metrics:
        addresses.append(("metrics", f"{url}/metrics"))
    sections = [
        (f"babelgate {__version__}", aligned(addresses)),
        ("Brokers", aligned([_broker_row(name, settings, states.get(name)) for name in settings.brokers])),
        ("Routes", _route_lines(routes)),
        ("Warnings", warnings),
        ("Try it in another terminal", _examples(url, settings)),
    ]
    for title, lines in sections:
        if lines:
            heading(title)
            for line in lines:
                complain(f"  {line.strip()}")
            complain("")


def _broker_row(name: str, settings: Settings, state: BrokerState | None) -> tuple[str, ...]:
    if state is None:
        condition = "not used by any route"
    else:
        condition = f"down: {state.down.facts.get('reason', state.down.detail)}" if state.down is not None else "up"
    return name, settings.brokers[name].masked_url, (state.version if state is not None else None) or "", condition


def _route_lines(routes: Sequence[tuple[str, Route]]) -> list[str]:
    named = [("(any other)" if key == "default" else key.removeprefix("queues."), route) for key, route in routes]
    rows = [
        (queue, "→", route.broker, f"lease {route.policy.lease_seconds:g} s, {route.policy.max_attempts} attempts")
        for queue, route in named[:MAX_ROUTES]
    ]
    more = len(named) - len(rows)
    return aligned(rows) + [f"… and {more} more, which check-config prints"] * bool(more)


def _examples(url: str, settings: Settings) -> list[str]:
    token = "" if settings.auth in (None, "none") else ' -H "Authorization: Bearer $BABELGATE_TOKEN"'
    curl = f"curl -s{' -k' if settings.tls_cert else ''}{token} --json"
    queue = next((name for name in settings.queues if "*" not in name), "emails")
    messages = f"{url}/queues/{queue}/messages"
    lease = r"""$(sed 's/.*"ack_token":"\([^"]*\)".*/\1/' message.json)"""
    return [
        f"""  publish  {curl} '{{"job": "urn:babel:{queue}:send", "data": {{"to": "ada@example.com"}}}}' {messages}""",
        f"""  receive  {curl} '{{"wait_seconds": 5}}' {messages}:receive | tee message.json""",
        rf"""  ack      {curl} "{{\"ack_tokens\": [\"{lease}\"]}}" {messages}:ack""",
    ]
