"""The command line: ``serve``, ``check-config`` and ``healthcheck`` read the configuration, and the other commands
are clients of a running gateway.

Exit statuses: 0 for success, 1 when the gateway refused something, 2 for wrong usage, 3 when no gateway answers.

Commands import their modules when they run, so that ``--help`` is quick and loads no broker's client.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from babelgate import __version__
from babelgate.cli.audit import audit
from babelgate.cli.config import config
from babelgate.cli.connection import CONFIG
from babelgate.cli.consuming import ack, nack, peek, receive, tail
from babelgate.cli.dead_letters import dead_letters, formerly_redrive
from babelgate.cli.history import events, message, trace
from babelgate.cli.journal import journal
from babelgate.cli.output import REFUSED, complain, configuration_errors, one_line_errors, print_json, say, table
from babelgate.cli.publishing import publish, validate
from babelgate.cli.pushes import push
from babelgate.cli.queues import brokers, pause, purge, queues, resume
from babelgate.cli.schemas import schemas
from babelgate.cli.startup import broker_states, greet, setting_warnings, summarize
from babelgate.cli.tokens import tokens
from babelgate.cli.top import open_console, top
from babelgate.pipeline.cli.main import pipeline
from babelgate.terminal import guard_output

if TYPE_CHECKING:
    from babelgate.config.settings import Settings
    from babelgate.gateway.routing import Route


class _Commands(click.Group):
    """The group of all commands. The message of an error, which may repeat an argument, is one line."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with one_line_errors():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with one_line_errors():
            return super().invoke(ctx)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="babelgate")
def cli() -> None:
    """One HTTP service in front of every message broker."""


@cli.command(epilog="\b\nExample:\n  babelgate serve --config babelgate.yaml --port 8080")
@CONFIG
@click.option("--host", help="The address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="The port to listen on; 0 selects a free port.  [default: 8080]")
@click.option("--workers", type=int, help="The number of processes that share the port.  [default: 1]")
@click.option("--prefix", help="The path prefix that a proxy adds.")
@click.option("--tls-cert", type=click.Path(), help="The certificate chain, PEM.")
@click.option("--tls-key", type=click.Path(), help="The private key of the certificate, PEM.")
@click.option("--log-level", help="The lowest level that is logged: debug, info, warning or error.  [default: info]")
@click.option("--quiet", is_flag=True, help="Print no summary and no example commands.")
def serve(config: Path | None, quiet: bool, **options: Any) -> None:
    """Run the gateway until SIGTERM or Ctrl-C."""
    # Imports make many objects and no garbage; server.serve() enables the collector again.
    gc.disable()
    from babelgate.config.origin import Origin
    from babelgate.server import server

    given = {name: value for name, value in options.items() if value is not None}
    with configuration_errors(config, given):
        origin = Origin(config, dict(os.environ), given)
        loaded = origin.load()
        sys.exit(server.serve(loaded, partial(_announce, loaded, quiet), origin))


def _announce(settings: Settings, quiet: bool, url: str, routes: Sequence[tuple[str, Route]]) -> None:
    if sys.stderr.isatty() and not quiet:
        summarize(url, settings, routes)
    elif not quiet:
        greet(url, settings)


@cli.command("check-config", epilog="\b\nExample:\n  babelgate check-config --config babelgate.yaml")
@CONFIG
@click.option("--offline", is_flag=True, help="Do not connect to the brokers to get their warnings.")
@click.option("--strict", is_flag=True, help="Exit with 1 also if there are warnings.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check_config(config: Path | None, offline: bool, strict: bool, as_json: bool) -> None:
    """Check the configuration: print the routes and warnings, or exit with 1 if the gateway would not start."""
    from babelgate.config import settings
    from babelgate.server.checks import check_settings

    with configuration_errors(config):
        loaded = settings.load(config, os.environ)
        routes = check_settings(loaded)
    brokers = [{"broker": n, "url": b.masked_url, "required": b.required} for n, b in loaded.brokers.items()]
    described = [_described(*line) for line in routes]
    if not as_json:
        table(
            ("BROKER", "URL", "REQUIRED"), [(b["broker"], b["url"], "yes" if b["required"] else "no") for b in brokers]
        )
        say()
        heads = (
            "QUEUE",
            "BROKER",
            "NATIVE QUEUE",
            "STORED AS",
            "DEAD-LETTER QUEUE",
            "LEASE",
            "ATTEMPTS",
            "BACKOFF",
            "TTL",
        )
        table(heads, [_row(route) for route in described])
    warnings = _warnings(loaded, routes, offline)
    if as_json:
        print_json({"brokers": brokers, "routes": described, "warnings": warnings})
    else:
        for warning in warnings:
            complain(f"warning: {warning}")
    if strict and warnings:
        sys.exit(REFUSED)


@cli.command(epilog="\b\nExample:\n  babelgate healthcheck --config babelgate.yaml")
@CONFIG
def healthcheck(config: Path | None) -> None:
    """Check that the gateway with this configuration is alive on this machine; exit with 0 if it is, else with 1.

    This command does not see the options of serve: set them in the file or with BABELGATE_ variables.
    """
    from babelgate.config import settings
    from babelgate.server.healthcheck import Unhealthy, ask

    with configuration_errors(config):
        loaded = settings.load(config, os.environ)
        try:
            say(ask(loaded))
        except Unhealthy as error:
            complain(str(error))
            sys.exit(REFUSED)


def _described(key: str, route: Route) -> dict[str, Any]:
    """A route as ``--json`` prints it. ``queue`` is null for the default; names of many queues contain ``{queue}``."""
    from babelgate.gateway.redacting import described

    queue = None if key == "default" else key.removeprefix("queues.")

    def named(native: str | None) -> str | None:
        many = queue is None or "*" in queue
        return native.replace(route.queue, "{queue}") if native is not None and many else native

    return {
        "queue": queue,
        "broker": route.broker,
        "native_name": named(route.native.name),
        "stored_as": dict(route.native.stored_as),
        "dead_letter_queue": named(route.native.dead_letters),
        **described(route.policy),
    }


def _row(route: dict[str, Any]) -> tuple[object, ...]:
    backoff = ",".join(f"{seconds:g}" for seconds in route["backoff_seconds"]) or None
    return (
        route["queue"] or "(any other)",
        route["broker"],
        route["native_name"],
        ", ".join(route["stored_as"].values()) or None,
        route["dead_letter_queue"],
        f"{route['lease_seconds']:g}",
        route["max_attempts"],
        backoff,
        None if route["ttl_seconds"] is None else f"{route['ttl_seconds']:g}",
    )


def _warnings(settings: Settings, routes: Sequence[tuple[str, Route]], offline: bool) -> list[str]:
    from babelgate.brokers.registry import driver

    found = setting_warnings(settings, routes)
    if not offline:
        # Opening an embedded broker would create its file, owned by the user of this command.
        asked = [route for _, route in routes if not driver(route.broker, settings.brokers[route.broker].url).embedded]
        for state in broker_states(asked).values():
            found += [state.down.detail] if state.down is not None else state.warnings
    return found


_COMMANDS = (
    *(publish, validate, receive, tail, peek, ack, nack),
    *(
        queues,
        brokers,
        top,
        open_console,
        pause,
        resume,
        purge,
        push,
        tokens,
        dead_letters,
        message,
        trace,
        events,
        journal,
        audit,
        schemas,
        config,
        pipeline,
    ),
)
for command in _COMMANDS:
    cli.add_command(command)
cli.add_command(formerly_redrive, "redrive")


def main() -> None:
    """The entry point of ``babelgate`` and ``python -m babelgate``."""
    guard_output()
    cli(prog_name="babelgate")
