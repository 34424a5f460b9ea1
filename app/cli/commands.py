"""The commands that call a running gateway through its public API.

Exit statuses: 0 for success, 1 when the gateway refused something, 2 for wrong usage, 3 when no gateway answers.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from app.cli.output import REFUSED, complain, gateway_errors, table
from app.jsontext import syntax_reason

if TYPE_CHECKING:
    from app.cli.client import Client

LOCAL_URL = "http://127.0.0.1:8080"
LINES_PER_REQUEST = 1_000
BYTES_PER_REQUEST = 4_194_304
MESSAGES_PER_RECEIVE = 100
"""The maximum of the API."""
LONG_POLL_SECONDS = 20
NDJSON = "application/x-ndjson"

Lines = Iterator[tuple[int, bytes]]


def _connects(command: Callable[..., None]) -> Callable[..., None]:
    """Add connection options to ``command`` and pass it a Client. Errors of the client end the program."""

    @functools.wraps(command)
    def connected(url: str, token: str | None, token_file: IO[str] | None, **arguments: Any) -> None:
        from app.cli.client import Client

        secret = (token or (token_file.read() if token_file else "")).strip()
        if not (secret.isascii() and secret.isprintable()):
            # The value may still be a secret, so it is not quoted.
            raise click.BadParameter("a token must be one line of ASCII", param_hint="--token")
        with gateway_errors(), Client(url, secret or None) as client:
            command(client, **arguments)

    for option in (
        click.option(
            "--token-file",
            type=click.File(errors="replace"),
            envvar="BABELGATE_TOKEN_FILE",
            help="A file that contains the token.",
        ),
        click.option(
            "--token", envvar="BABELGATE_TOKEN", help="The bearer token; prefer the variable BABELGATE_TOKEN."
        ),
        click.option(
            "--url", envvar="BABELGATE_URL", default=LOCAL_URL, show_default=True, help="The URL of the gateway."
        ),
    ):
        connected = option(connected)
    return connected


@click.command()
@click.argument("queue")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--job", help="Publish one message with this job instead of reading messages.")
@click.option("--data", help="The data of the --job, a JSON object.  [default: {}]")
@click.option("--trace-id", help="The trace id of the --job.")
@click.option("--ndjson", is_flag=True, help="Read one message per line, without detecting the format.")
@click.option("--delay-seconds", type=float, help="The delay of a single message.")
@click.option("--ordering-key", help="The ordering key of a single message, where the broker supports it.")
@click.option(
    "--idempotency-key", help="Publish a single message only once, even if this command is repeated with the same key."
)
@_connects
def publish(
    client: Client,
    queue: str,
    file: IO[bytes],
    job: str | None,
    data: str | None,
    trace_id: str | None,
    ndjson: bool,
    idempotency_key: str | None,
    **parameters: Any,
) -> None:
    """Publish envelopes or drafts from FILE (default: stdin): one JSON object, an array, or one object per line.

    Prints the receipt of a single message, or the number of accepted messages. Refused messages are reported on
    stderr; the others are published.
    """
    if idempotency_key is not None:
        from app.cli.client import quoted

        try:
            quoted(idempotency_key)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--idempotency-key") from None
    if job is not None:
        if click.get_current_context().get_parameter_source("file") is not ParameterSource.DEFAULT:
            raise click.UsageError("--job and FILE cannot be used together.")
        _print_json(client.publish(queue, _draft(job, data or "{}", trace_id), parameters, idempotency_key))
        return
    if data is not None or trace_id is not None:
        raise click.UsageError("--data and --trace-id require --job.")
    lines: Lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
    body, lines = (b"", lines) if ndjson else _sniff(lines)
    single = bool(body) and not body.lstrip().startswith(b"[")
    if not single and any(value is not None for value in (idempotency_key, *parameters.values())):
        named = "--delay-seconds, --ordering-key and --idempotency-key"
        raise click.UsageError(f"{named} are options of a single message; put them into the entries of a batch.")
    if not body:
        _publish_lines(client, queue, lines, file)
    elif single:
        _print_json(client.publish(queue, body, parameters, idempotency_key))
    else:
        answer = client.publish_batch(queue, body)
        _finish(answer["accepted"], _tell_failures(answer, range(len(answer["results"])), "entry"))


def _draft(job: str, data: str, trace_id: str | None) -> bytes:
    try:
        json.loads(data)
    except ValueError as error:
        reason = "it is not JSON"
        if isinstance(error, json.JSONDecodeError):
            reason = syntax_reason(error.msg, error.pos)
        raise click.BadParameter(f"{reason}.", param_hint="--data") from None
    traced = f',"trace_id":{json.dumps(trace_id)}' if trace_id is not None else ""
    # The text of --data is kept, so that no number changes on the way.
    return f'{{"job":{json.dumps(job)},"data":{data}{traced}}}'.encode()


def _sniff(lines: Lines) -> tuple[bytes, Lines]:
    """A single document as its body; or, when an object fills the first of several lines, NDJSON as numbered lines."""
    nothing = (0, b"")
    first, second = next(lines, nothing), next(lines, nothing)
    if second[1] and _is_object(first[1]):
        return b"", itertools.chain([first, second], lines)
    return first[1] + second[1] + b"".join(line for _, line in lines), iter(())


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _publish_lines(client: Client, queue: str, lines: Lines, file: IO[bytes]) -> None:
    accepted = failed = 0
    try:
        with _progress(file) as advance:
            for numbers, body in _requests(lines):
                answer = client.publish_batch(queue, body, NDJSON)
                accepted += answer["accepted"]
                failed += _tell_failures(answer, numbers, "line")
                advance(len(body))
    except BaseException:
        complain(f"stopped early: {accepted} accepted, {failed} refused")
        raise
    _finish(accepted, failed)


def _requests(lines: Lines) -> Iterator[tuple[list[int], bytes]]:
    """The lines in bodies of a bounded size, each with the numbers of its lines."""
    numbers: list[int] = []
    body = bytearray()
    for number, line in lines:
        numbers.append(number)
        body += line.rstrip(b"\r\n") + b"\n"
        if len(numbers) == LINES_PER_REQUEST or len(body) >= BYTES_PER_REQUEST:
            yield numbers, bytes(body)
            numbers, body = [], bytearray()
    if numbers:
        yield numbers, bytes(body)


@contextmanager
def _progress(file: IO[bytes]) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; yield the function that reports sent bytes."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    total = os.fstat(file.fileno()).st_size or None
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("publishing", total=total)
        yield lambda count: bar.advance(task, count)


def _tell_failures(answer: dict[str, Any], numbers: Sequence[int], unit: str) -> int:
    for result in answer["results"]:
        if result["status"] != 201:
            # After the first failures of a batch, a result has a code and no detail.
            reason = ": ".join(filter(None, (result.get("code"), result.get("detail"))))
            complain(f"{unit} {numbers[result['index']]}: {reason}")
    return int(answer["failed"])


def _finish(accepted: int, failed: int) -> None:
    _print_json({"accepted": accepted, "failed": failed})
    if failed:
        sys.exit(REFUSED)


def _print_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def _receives(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--envelope", "bare", is_flag=True, help="Print only the envelopes."),
        click.option("--ack", is_flag=True, help="Acknowledge the printed messages."),
        click.option("--lease", "lease_seconds", type=float, help="The lease in seconds.  [default: the queue's]"),
        click.argument("queue"),
    ):
        command = option(command)
    return command


@click.command()
@_receives
@click.option(
    "--max", "maximum", type=click.IntRange(min=1), default=1, show_default=True, help="The maximum number of messages."
)
@click.option("--wait", type=float, default=0, show_default=True, help="Seconds to wait for the first message.")
@_connects
def receive(client: Client, maximum: int, wait: float, **how: Any) -> None:
    """Receive messages from QUEUE, one JSON object per line. Without --ack they return when their lease ends."""
    left = maximum
    while left and (received := _receive(client, left, wait, **how)):
        left -= received
        wait = 0


@click.command()
@_receives
@click.option(
    "--max", "maximum", type=click.IntRange(min=1), help="Stop after this number of messages.  [default: never]"
)
@_connects
def tail(client: Client, maximum: int | None, **how: Any) -> None:
    """Receive messages from QUEUE until Ctrl-C."""
    left = sys.maxsize if maximum is None else maximum
    while left:
        left -= _receive(client, left, LONG_POLL_SECONDS, **how)


def _receive(
    client: Client, maximum: int, wait: float, *, queue: str, lease_seconds: float | None, ack: bool, bare: bool
) -> int:
    """Receive once, print, then acknowledge; return the number of messages."""
    messages = client.receive(queue, min(maximum, MESSAGES_PER_RECEIVE), wait, lease_seconds)
    out = sys.stdout.buffer
    for message in messages:
        # A body of another program may have line breaks, but only between its JSON tokens.
        out.write((message.envelope if bare else message.text).replace(b"\n", b" ").replace(b"\r", b" ") + b"\n")
    out.flush()
    if ack and messages:
        for result in client.ack(queue, [message.ack_token for message in messages])["results"]:
            if result["status"] != 200:
                complain(f"not acknowledged: {result.get('code')}: {result.get('detail')}")
                sys.exit(REFUSED)
    return len(messages)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print NDJSON.")
@_connects
def queues(client: Client, as_json: bool) -> None:
    """List the queues with their numbers of messages."""
    found = client.queues()
    if as_json:
        for queue in found:
            _print_json(queue)
    else:
        counts = ("depth", "in_flight", "delayed", "dead", "oldest_age_seconds")
        rows = [[queue["queue"], queue["broker"], *map(queue["stats"].get, counts)] for queue in found]
        table(("QUEUE", "BROKER", "READY", "IN FLIGHT", "DELAYED", "DEAD", "OLDEST (s)"), rows)


@click.command()
@click.argument("queue")
@click.option("--limit", type=click.IntRange(min=1), help="The maximum number of dead letters.")
@click.option("--job", help="Only dead letters with this job.")
@click.option(
    "--reason", type=click.Choice(["failed", "poison", "unknown_urn"]), help="Only dead letters with this reason."
)
@click.option("--before", type=int, help="Only dead letters from before this time, Unix milliseconds.")
@click.option("--after", type=int, help="Only dead letters from this time or later, Unix milliseconds.")
@click.option("--trace-id", help="Only dead letters with this trace id.")
@click.option("--to-queue", help="The target queue.  [default: QUEUE]")
@click.option("--dry-run", is_flag=True, help="Only count the dead letters.")
@_connects
def redrive(
    client: Client, queue: str, limit: int | None, to_queue: str | None, dry_run: bool, **conditions: Any
) -> None:
    """Send dead letters of QUEUE back. An interrupted redrive loses nothing and can be repeated."""
    order: dict[str, Any] = {"dry_run": dry_run}
    order |= {name: value for name, value in (("limit", limit), ("to_queue", to_queue)) if value is not None}
    order["filter"] = {name: value for name, value in conditions.items() if value is not None}
    result = client.redrive(queue, order)
    _print_json(result)
    if result["failed"]:
        sys.exit(REFUSED)


COMMANDS = (publish, receive, tail, queues, redrive)
