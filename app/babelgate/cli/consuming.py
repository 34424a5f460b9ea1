"""The commands ``receive``, ``tail``, ``peek``, ``ack`` and ``nack``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import click

from babelgate.cli.connection import Number, as_json, connects
from babelgate.cli.output import REFUSED, block, complain, fits, print_json, print_json_text, say
from babelgate.runtime.cache import Recent
from babelgate.terminal import printable

if TYPE_CHECKING:
    from babelgate.cli.client import Client, ShownMessage

    Look = Callable[[str, int], Sequence[ShownMessage]]
    """Finds ready messages of a queue, up to a number of them."""

MESSAGES_PER_CALL = 100
"""The maximum of the API for a receive and for a peek."""
TOKENS_PER_CALL = 1_000
LONG_POLL_SECONDS = 20
TAIL_SECONDS = 1.0
REMEMBERED = 100_000
"""Messages that ``tail`` knows again, so that it prints each one once."""
_HEADS = ("ID", "ATTEMPTS", "JOB", "DATA")
_COLUMNS = "{:<36}  {:>8}  {:<32}  {}"

envelopes = click.option("--envelope", "bare", is_flag=True, help="Print only the envelopes, as JSON.")


@click.command(
    epilog="\b\nExamples:"
    "\n  babelgate receive emails --max 10 --wait 5 --ack"
    "\n  babelgate receive emails --json > got.ndjson"
)
@click.argument("queue")
@click.option(
    "--max",
    "maximum",
    type=click.IntRange(min=1),
    help="The maximum number of messages.  [default: 1; with --follow no maximum]",
)
@click.option("--wait", type=Number(), default=0, show_default=True, help="Seconds to wait for the first message.")
@click.option("--follow", is_flag=True, help="Go on receiving until Ctrl-C.")
@click.option("--lease", "lease_seconds", type=Number(), help="The lease in seconds.  [default: the queue's]")
@click.option("--ack", is_flag=True, help="Acknowledge the printed messages.")
@envelopes
@as_json
@connects
def receive(
    client: Client, queue: str, maximum: int | None, wait: float, follow: bool, ack: bool, as_json: bool, **how: Any
) -> None:
    """Receive messages from QUEUE. Without --ack they return when their lease ends; the command `ack` reads their
    tokens from the output of --json."""
    left = maximum or (sys.maxsize if follow else 1)
    printer = _Printer(how.pop("bare"), as_json)
    while left:
        messages = client.receive(queue, min(left, MESSAGES_PER_CALL), LONG_POLL_SECONDS if follow else wait, **how)
        if not messages and not follow:
            break
        for message in messages:
            printer.show(message)
        printer.flush()
        if ack and messages:
            _report(client.settle(queue, {"acks": [message.ack_token for message in messages]}))
        left -= len(messages)
        wait = 0


@click.command(epilog="\b\nExample:\n  babelgate peek emails --limit 3")
@click.argument("queue")
@click.option(
    "--limit",
    type=click.IntRange(1, MESSAGES_PER_CALL),
    default=10,
    show_default=True,
    help="The maximum number of messages.",
)
@envelopes
@as_json
@connects
def peek(client: Client, queue: str, limit: int, bare: bool, as_json: bool) -> None:
    """Print the oldest ready messages of QUEUE without taking them, where the broker supports it."""
    printer = _Printer(bare, as_json)
    for message in client.peek(queue, limit):
        printer.show(message)
    printer.flush()


@click.command(epilog="\b\nExample:\n  babelgate tail emails")
@click.argument("queue")
@click.option(
    "--max", "maximum", type=click.IntRange(min=1), help="Stop after this number of messages.  [default: never]"
)
@envelopes
@as_json
@connects
def tail(client: Client, queue: str, maximum: int | None, bare: bool, as_json: bool) -> None:
    """Print the ready messages of QUEUE, and new ones as they come, until Ctrl-C. No attempt is counted.

    Each second this command looks at the 100 oldest messages. A message that a consumer takes meanwhile is not seen.
    """
    left = sys.maxsize if maximum is None else maximum
    printer = _Printer(bare, as_json)
    look = _look(client, queue)
    known: Recent[bytes, None] = Recent(REMEMBERED)
    while True:
        for message in look(queue, MESSAGES_PER_CALL):
            key = blake2b(message.envelope, digest_size=16).digest()
            if key in known or not left:
                continue
            known[key] = None
            printer.show(message)
            left -= 1
        printer.flush()
        if not left:
            return
        time.sleep(TAIL_SECONDS)


@click.command(epilog="\b\nExample:\n  babelgate ack emails < got.ndjson")
@click.argument("queue")
@click.argument("ack_tokens", nargs=-1)
@as_json
@connects
def ack(client: Client, queue: str, ack_tokens: tuple[str, ...], as_json: bool) -> None:
    """Acknowledge received messages: remove them from QUEUE.

    ACK_TOKENS are read from stdin if none are given: one token per line, or the output of `receive --json`.
    """
    _settle(client, queue, ack_tokens, lambda tokens: {"acks": tokens}, as_json)


@click.command(
    epilog="\b\nExamples:"
    "\n  babelgate nack emails --delay-seconds 60 --error 'mail server refused' < got.ndjson"
    "\n  babelgate nack emails --not-attempted < got.ndjson"
)
@click.argument("queue")
@click.argument("ack_tokens", nargs=-1)
@click.option("--delay-seconds", type=Number(), help="Seconds until they are delivered again.  [default: the backoff]")
@click.option("--error", "message", help="Why the attempt failed.")
@click.option("--exception", help="The kind of the failure, such as the class of an exception.")
@click.option("--not-attempted", is_flag=True, help="Give them back at once, without counting an attempt.")
@as_json
@connects
def nack(
    client: Client,
    queue: str,
    ack_tokens: tuple[str, ...],
    delay_seconds: float | None,
    message: str | None,
    exception: str | None,
    not_attempted: bool,
    as_json: bool,
) -> None:
    """Return received messages to QUEUE, to be delivered again.

    ACK_TOKENS are read from stdin if none are given: one token per line, or the output of `receive --json`.
    """
    error = {"message": message, "exception": exception} if message is not None or exception is not None else None
    if not_attempted and (error is not None or delay_seconds is not None):
        raise click.UsageError("--not-attempted cannot be used with --delay-seconds, --error or --exception.")
    how = {"delay_seconds": delay_seconds, "error": error, "failed": not not_attempted}
    _settle(client, queue, ack_tokens, lambda tokens: {"nacks": [{"ack_tokens": tokens, **how}]}, as_json)


def _look(client: Client, queue: str) -> Look:
    """How ``tail`` looks at the messages of ``queue``; it is printed."""
    from babelgate.cli.client import RequestRefused

    def receive_and_give_back(queue: str, limit: int) -> Sequence[ShownMessage]:
        messages = client.receive(queue, limit, LONG_POLL_SECONDS, None)
        if messages:
            tokens = [message.ack_token for message in messages]
            _report(client.settle(queue, {"nacks": [{"ack_tokens": tokens, "failed": False}]}))
        return messages

    try:
        client.peek(queue, 1)
    except RequestRefused as error:
        if error.problem.get("code") != "unsupported_by_broker":
            raise
        complain(
            f"tail: the broker of {queue} cannot peek. Messages are received and given back at once, uncounted; "
            "their order may change, and consumers may see them as redelivered."
        )
        return receive_and_give_back
    complain(f"tail: peeking at {queue}; no message is taken.")
    return client.peek


def _settle(
    client: Client,
    queue: str,
    ack_tokens: Sequence[str],
    order: Callable[[Sequence[str]], Mapping[str, Any]],
    as_json: bool,
) -> None:
    tokens = ack_tokens or _tokens_from_stdin()
    settled = failed = 0
    for start in range(0, len(tokens), TOKENS_PER_CALL):
        answer = client.settle(queue, order(tokens[start : start + TOKENS_PER_CALL]))
        settled += answer["settled"]
        failed += answer["failed"]
        _complain_of_failures(answer, start)
    if as_json:
        print_json({"settled": settled, "failed": failed})
    else:
        say(f"{settled} settled, {failed} failed")
    if failed:
        sys.exit(REFUSED)


def _tokens_from_stdin() -> Sequence[str]:
    tokens = []
    for number, line in enumerate(sys.stdin, 1):
        text = line.strip()
        if text.startswith("{"):
            try:
                text = json.loads(text)["ack_token"]
            except (ValueError, KeyError):
                raise click.UsageError(f"ACK_TOKENS: line {number} of stdin has no ack_token.") from None
        if text:
            tokens.append(text)
    if not tokens:
        raise click.UsageError("ACK_TOKENS: none are given, and stdin has none.")
    return tokens


def _report(answer: Mapping[str, Any]) -> None:
    """Print the unsettled tokens, and exit."""
    _complain_of_failures(answer, 0)
    if answer["failed"]:
        sys.exit(REFUSED)


def _complain_of_failures(answer: Mapping[str, Any], start: int) -> None:
    for result in answer["results"]:
        if result["status"] != 200:
            complain(f"token {start + result['index'] + 1}: {result.get('code')}: {result.get('detail')}")


class _Printer:
    """Prints messages: as JSON, as bare envelopes, or as rows for people, with the heads before the first one. From the
    first message on that is wider than the terminal, messages are blocks instead of rows."""

    def __init__(self, bare: bool, as_json: bool) -> None:
        self._bare = bare
        self._for_people = not bare and not as_json
        self._shown = 0
        self._in_blocks = False

    def show(self, message: ShownMessage) -> None:
        """Print the whole message: on one line, or as a block."""
        if not self._for_people:
            print_json_text(message.envelope if self._bare else message.text)
            return
        cells = message.row()
        row = printable(_COLUMNS.format(*cells))
        self._in_blocks = self._in_blocks or not fits([row])
        if self._in_blocks:
            if self._shown:
                say()
            *heads, data = _HEADS
            block(heads, cells[:-1])
            say(f"{data.lower()}:")
            # The terminal breaks its lines, so that it can be copied as one.
            say(cells[-1])
        else:
            if not self._shown:
                say(_COLUMNS.format(*_HEADS))
            say(row)
        self._shown += 1

    def flush(self) -> None:
        """Flush the output to its reader. An error means that the reader has gone."""
        sys.stdout.flush()
        sys.stdout.buffer.flush()
