"""The commands ``top``, the overview of a gateway in a terminal, and ``open``, the address of its console."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from babelgate.cli.connection import Number, as_json, connects
from babelgate.cli.output import REFUSED, complain, print_json, say, say_wrapped, table
from babelgate.terminal import printable, unguarded

if TYPE_CHECKING:
    from rich.console import RenderableType

    from babelgate.cli.client import Client

_HEADS = ("QUEUE", "BROKER", "IN/S", "OUT/S", "ACKED/S", "READY", "IN FLIGHT", "DEAD", "OLDEST")
_TEXTS = 2
"""Columns of texts; the others are numbers."""
_FRAME = 6
"""Lines of the screen beside queues and concerns."""
_CONCERNS = 8
"""Concerns on the screen."""


@click.command(epilog="\b\nExamples:\n  babelgate top\n  babelgate top --once --json")
@click.option(
    "--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="The number of queues to show."
)
@click.option("--every", type=Number(above=True), default=2.0, show_default=True, help="The seconds between two looks.")
@click.option("--once", is_flag=True, help="Print the figures once and exit. So it is, too, without a terminal.")
@as_json
@connects
def top(client: Client, limit: int, every: float, once: bool, as_json: bool) -> None:
    """Show the busiest queues, the circuits of brokers, and what needs attention, until q or Ctrl-C.

    IN/S, OUT/S and ACKED/S are messages published, delivered and acked a second, the mean of the last minute.
    """
    rates = client.rates(limit)
    if as_json:
        print_json(rates)
    elif once or not sys.stdout.isatty():
        _print(client.address, rates)
    else:
        _watch(client, limit, every, rates)


@click.command("open", epilog="\b\nExamples:\n  babelgate open\n  babelgate open --browser")
@click.option("--browser", is_flag=True, help="Open it in the browser, too.")
@connects
def open_console(client: Client, browser: bool) -> None:
    """Print the address of the gateway's console. It asks for a token where the gateway needs one."""
    if not client.address.startswith(("http://", "https://")):
        raise click.BadParameter("a browser needs a URL that begins with http:// or https://", param_hint="--url")
    console = f"{client.address}/console"
    say(console)
    if browser:
        import webbrowser

        if not webbrowser.open(console):
            complain("no browser could be started: open the address yourself")
            sys.exit(REFUSED)


def _print(url: str, rates: Mapping[str, Any]) -> None:
    for line in _summary(url, rates):
        say_wrapped(line)
    if rates["queues"]:
        say()
        table(_HEADS, [_row(queue) for queue in rates["queues"]])
    if rates["attention"]:
        say()
        for concern in rates["attention"]:
            say_wrapped(f"! {concern['detail']}")


def _watch(client: Client, limit: int, every: float, rates: Mapping[str, Any]) -> None:
    """Show the figures again and again. While the gateway does not answer, the last ones stay, with the reason."""
    from rich.console import Console
    from rich.live import Live

    from babelgate.cli.client import GatewayUnreachable

    console, lost = Console(file=unguarded(sys.stdout)), ""
    with _keys() as key, Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live:
        while True:
            live.update(screen_of(client.address, rates, lost, console.height), refresh=True)
            if key(every) in ("q", "Q", "\x04"):
                return
            try:
                rates, lost = client.rates(limit), ""
            except GatewayUnreachable as error:
                lost = f"no answer from {error}"


def screen_of(url: str, rates: Mapping[str, Any], lost: str, height: int) -> RenderableType:
    """What ``top`` shows of the answer ``rates`` on a terminal of ``height`` lines. ``lost``: why it is an old one."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    concerns = rates["attention"][: min(_CONCERNS, max(height - _FRAME - 5, 1))]
    queues = Table(box=None, pad_edge=False, header_style="bold")
    for number, head in enumerate(_HEADS):
        queues.add_column(head, justify="left" if number < _TEXTS else "right", no_wrap=True, overflow="ellipsis")
    for queue in rates["queues"][: max(height - _FRAME - len(concerns), 1)]:
        queues.add_row(*(Text(printable(cell)) for cell in _row(queue)))
    parts: list[RenderableType] = [Text(printable(line), no_wrap=True) for line in _summary(url, rates)]
    if lost:
        parts.append(Text(printable(lost), style="bold red", no_wrap=True))
    parts += [Text(), queues, Text()]
    parts += [Text(printable(f"! {concern['detail']}"), style="yellow", no_wrap=True) for concern in concerns]
    parts.append(Text("q quits", style="dim"))
    return Group(*parts)


def _summary(url: str, rates: Mapping[str, Any]) -> list[str]:
    """The sums over all queues, and the circuits."""
    hour, processes = rates["hour"], rates["processes"]
    names = ("published", "delivered", "acked")
    lines = [
        f"{url}  {time.strftime('%H:%M:%S')}  processes: {processes['up']} up, {processes['silent']} silent",
        "a second: " + ", ".join(f"{_number(rates[f'{name}_per_second'])} {name}" for name in names),
        f"last hour: {hour['published']} published, {hour['dead_lettered']} dead-lettered, "
        f"{hour['lease_expired']} leases expired, {hour['broker_errors']} failed calls; publish p99 "
        f"{_seconds(hour['publish_p99_seconds'])}, delivery p99 {_seconds(hour['delivery_p99_seconds'])}",
    ]
    if circuits := [f"{each['broker']} {each['circuit']}" for each in rates["brokers"]]:
        lines.append("circuits: " + ", ".join(circuits))
    return lines


def _row(queue: Mapping[str, Any]) -> Sequence[str]:
    stats = queue["stats"]
    speeds = (_number(queue[f"{name}_per_second"]) for name in ("published", "delivered", "acked"))
    counts = ("-" if stats[name] is None else str(stats[name]) for name in ("depth", "in_flight", "dead"))
    return queue["queue"], queue["broker"], *speeds, *counts, _seconds(stats["oldest_age_seconds"])


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _seconds(value: float | None) -> str:
    """A duration with its unit, such as ``12 ms`` or ``3.5 h``."""
    if value is None:
        return "-"
    for least, unit, factor in ((86_400, "d", 86_400), (3_600, "h", 3_600), (60, "min", 60), (1, "s", 1)):
        if value >= least:
            return f"{value / factor:.1f} {unit}"
    return f"{value * 1000:.1f} ms"


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits some seconds for a key and returns it, "" without one. It only waits if standard input is
    no terminal."""
    if not sys.stdin.isatty():

        def waited(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield waited
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()

    def pressed(seconds: float) -> str:
        ready = select.select([terminal], [], [], seconds)[0]
        # A terminal that is gone has an end, and no key.
        return (os.read(terminal, 1).decode("latin-1") or "q") if ready else ""

    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
