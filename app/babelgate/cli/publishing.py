"""The commands ``publish`` and ``validate``."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from babelgate.cli.connection import Number, as_json, connects
from babelgate.cli.output import REFUSED, complain, fields, print_json, say
from babelgate.terminal import guard_output, unguarded

if TYPE_CHECKING:
    from babelgate.cli.client import Client

LINES_PER_REQUEST = 1_000
BYTES_PER_REQUEST = 4_194_304
NDJSON = "application/x-ndjson"
JSON = "application/json"
EVENT, EVENTS = "application/cloudevents+json", "application/cloudevents-batch+json"

Lines = Iterator[tuple[int, bytes]]


def _message_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--ordering-key", help="The ordering key of a single message, where the broker supports it."),
        click.option("--deliver-at", type=click.IntRange(min=0), help="When a single message is due, in Unix ms."),
        click.option(
            "--priority", type=click.IntRange(0, 9), help="The priority of a single message: 9 is the highest."
        ),
        click.option("--ttl-seconds", type=Number(), help="Seconds until a single message expires."),
        click.option("--delay-seconds", type=Number(), help="The delay of a single message."),
        click.option("--trace-id", help="The trace id of the --job."),
        click.option("--data", help="The data of the --job, a JSON object.  [default: {}]"),
        click.option("--job", help="Use one message with this job instead of reading FILE."),
        click.option("--cloudevents", is_flag=True, help="FILE has CloudEvents in the JSON format."),
        click.argument("file", type=click.File("rb"), default="-"),
        click.argument("queue"),
    ):
        command = option(command)
    return command


@click.command(
    epilog="\b\nExamples:"
    """\n  babelgate publish emails --job urn:babel:emails:welcome --data '{"to": "ada@example.com"}'"""
    "\n  babelgate publish emails messages.ndjson"
)
@_message_options
@click.option("--ndjson", is_flag=True, help="Read one message per line, without detecting the format.")
@click.option(
    "--idempotency-key", help="Publish a single message only once, even if this command is repeated with the same key."
)
@as_json
@connects
def publish(
    client: Client,
    queue: str,
    file: IO[bytes],
    job: str | None,
    data: str | None,
    trace_id: str | None,
    cloudevents: bool,
    ndjson: bool,
    idempotency_key: str | None,
    as_json: bool,
    **parameters: Any,
) -> None:
    """Publish envelopes, drafts or CloudEvents from FILE (default: stdin): a JSON object, an array, or one object per
    line.

    Prints the receipt of a single message, or the number of accepted messages. Refused messages are reported on
    stderr; the others are published.
    """
    if idempotency_key is not None:
        from babelgate.cli.client import quoted

        try:
            quoted(idempotency_key)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--idempotency-key") from None
    body, lines = _message(file, job, data, trace_id, ndjson, cloudevents)
    single = bool(body) and not body.lstrip().startswith(b"[")
    if not single and any(value is not None for value in (idempotency_key, *parameters.values())):
        named = "--delay-seconds, --deliver-at, --ttl-seconds, --priority, --ordering-key and --idempotency-key"
        raise click.UsageError(f"{named} are options of a single message; put them into the entries of a batch.")
    if single:
        receipt = client.publish(queue, body, parameters, idempotency_key, EVENT if cloudevents else JSON)
        if as_json:
            print_json(receipt)
        else:
            say(f"accepted {receipt['id']} on {receipt['queue']} ({receipt['broker']})")
            say(f"trace id {receipt['trace_id']}")
    elif body:
        answer = client.publish_batch(queue, body, EVENTS if cloudevents else JSON)
        _finish(answer["accepted"], _tell_failures(answer, range(len(answer["results"])), "entry"), as_json)
    else:
        _publish_lines(client, queue, lines, file, cloudevents, as_json)


@click.command(
    epilog="\b\nExample:" """\n  babelgate validate emails --job urn:babel:emails:welcome --data '{"to": "ada"}'"""
)
@_message_options
@click.option(
    "--mode",
    type=click.Choice(["publish", "consume"]),
    default="publish",
    show_default=True,
    help="The rules to apply: those for producers, or those for a body found on the queue.",
)
@as_json
@connects
def validate(
    client: Client,
    queue: str,
    file: IO[bytes],
    job: str | None,
    data: str | None,
    trace_id: str | None,
    cloudevents: bool,
    mode: str,
    as_json: bool,
    **parameters: Any,
) -> None:
    """Check one message from FILE (default: stdin) without publishing it, and print what would be written."""
    body, _ = _message(file, job, data, trace_id, False, cloudevents)
    if not body:
        raise click.UsageError("validate checks one message, and the input has several lines of them.")
    projection = client.validate(queue, body, {"mode": mode} | parameters, EVENT if cloudevents else JSON)
    if as_json:
        print_json(projection)
    else:
        fields(projection)


def _message(
    file: IO[bytes], job: str | None, data: str | None, trace_id: str | None, ndjson: bool, cloudevents: bool
) -> tuple[bytes, Lines]:
    """The body of one request; or no body, and the numbered lines of NDJSON. Raises UsageError for an empty input."""
    if job is not None:
        if click.get_current_context().get_parameter_source("file") is not ParameterSource.DEFAULT:
            raise click.UsageError("--job and FILE cannot be used together.")
        if cloudevents:
            raise click.UsageError("--job makes a message, and no CloudEvent: put the event into FILE.")
        return _draft(job, data or "{}", trace_id), iter(())
    if data is not None or trace_id is not None:
        raise click.UsageError("--data and --trace-id require --job.")
    lines: Lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
    first = next(lines, None)
    if first is None:
        name = "standard input" if file is sys.stdin.buffer or file.name == "<stdin>" else file.name
        raise click.UsageError(f"FILE: {name} has no message.")
    lines = itertools.chain([first], lines)
    return (b"", lines) if ndjson else _sniff(lines)


def _draft(job: str, data: str, trace_id: str | None) -> bytes:
    if not _is_object(data):
        raise click.BadParameter("it is not a JSON object", param_hint="--data")
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


def _is_object(line: str | bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _publish_lines(client: Client, queue: str, lines: Lines, file: IO[bytes], cloudevents: bool, as_json: bool) -> None:
    accepted = failed = 0
    try:
        with _progress(file) as advance:
            for numbers, body in _requests(lines):
                if cloudevents:
                    # Events have no format with one a line.
                    body = b"[%b]" % b",".join(body.splitlines())
                answer = client.publish_batch(queue, body, EVENTS if cloudevents else NDJSON)
                accepted += answer["accepted"]
                failed += _tell_failures(answer, numbers, "line")
                advance(len(body))
    except BaseException:
        complain(f"stopped early: {accepted} accepted, {failed} refused")
        raise
    _finish(accepted, failed, as_json)


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
    with Progress(console=Console(file=unguarded(sys.stderr)), transient=True) as bar:
        # The bar has replaced the streams, to keep printed lines above itself.
        guard_output()
        task = bar.add_task("publishing", total=total)
        yield lambda count: bar.advance(task, count)


def _tell_failures(answer: dict[str, Any], numbers: Sequence[int], unit: str) -> int:
    for result in answer["results"]:
        if result["status"] != 201:
            # After the first failures of a batch, a result has a code and no detail.
            reason = ": ".join(filter(None, (result.get("code"), result.get("detail"))))
            complain(f"{unit} {numbers[result['index']]}: {reason}")
    return int(answer["failed"])


def _finish(accepted: int, failed: int, as_json: bool) -> None:
    if as_json:
        print_json({"accepted": accepted, "failed": failed})
    else:
        say(f"{accepted} accepted, {failed} refused")
    if failed:
        sys.exit(REFUSED)
