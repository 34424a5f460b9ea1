"""The commands ``dead-letters list``, ``show``, ``redrive``, ``delete`` and ``jobs``."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import click

from babelgate.cli.connection import Number, as_json, connects
from babelgate.cli.output import REFUSED, complain, fields, print_json, print_json_text, say, table

if TYPE_CHECKING:
    from babelgate.cli.client import Client


@click.group("dead-letters")
def dead_letters() -> None:
    """Show the messages that were given up, send them back, or remove them."""


def conditions(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose dead letters to ``command``, and pass it those that were given, as ``chosen``."""

    @functools.wraps(command)
    def choosing(
        job: str | None,
        reason: str | None,
        error: str | None,
        before: int | None,
        after: int | None,
        trace_id: str | None,
        **others: Any,
    ) -> None:
        given = {
            "job": job,
            "reason": reason,
            "error": error,
            "before": before,
            "after": after,
            "trace_id": trace_id,
        }
        command(chosen={name: value for name, value in given.items() if value is not None}, **others)

    reasons = click.Choice(["failed", "poison", "unknown_urn"])
    for option in (
        click.option("--trace-id", help="Only dead letters with this trace id."),
        click.option("--after", type=int, help="Only dead letters from this time or later, Unix milliseconds."),
        click.option("--before", type=int, help="Only dead letters from before this time, Unix milliseconds."),
        click.option("--error", help="Only dead letters with exactly this error."),
        click.option("--reason", type=reasons, help="Only dead letters with this reason."),
        click.option("--job", help="Only dead letters with this job."),
    ):
        choosing = option(choosing)
    return choosing


@dead_letters.command("list", epilog="\b\nExample:\n  babelgate dead-letters list emails --reason failed")
@click.argument("queue")
@conditions
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The maximum number of dead letters."
)
@as_json
@connects
def list_(client: Client, queue: str, chosen: Mapping[str, Any], limit: int, as_json: bool) -> None:
    """List the dead letters of QUEUE, oldest first."""
    found = client.dead_letters(queue, chosen, limit)
    if as_json:
        for _, text in found:
            print_json_text(text)
        return
    heads = ("LETTER ID", "MESSAGE ID", "JOB", "REASON", "ATTEMPTS", "FAILED AT", "ERROR")
    names = ("letter_id", "id", "job", "reason", "attempts")
    rows = [[*map(letter.get, names), _time(letter["failed_at"]), letter["error"]] for letter, _ in found]
    table(heads, rows)


@dead_letters.command(epilog="\b\nExample:\n  babelgate dead-letters show emails 5f2b8c0d9e1a47368b7d2c4f6a0e1b93")
@click.argument("queue")
@click.argument("letter_id")
@as_json
@connects
def show(client: Client, queue: str, letter_id: str, as_json: bool) -> None:
    """Show one dead letter of QUEUE with its whole record."""
    text = client.dead_letter(queue, letter_id)
    if as_json:
        print_json_text(text)
    else:
        fields(json.loads(text))


@dead_letters.command(
    epilog="\b\nExamples:\n"
    "  babelgate dead-letters redrive emails --reason failed --dry-run\n"
    '  babelgate dead-letters redrive emails 5f2b8c0d9e1a47368b7d2c4f6a0e1b93 --data \'{"to": "ada@example.com"}\'\n'
    "  babelgate dead-letters redrive emails --per-second 50 --background"
)
@click.argument("queue")
@click.argument("letter_ids", nargs=-1)
@conditions
@click.option("--limit", type=click.IntRange(min=1), help="The maximum number of dead letters.")
@click.option("--to-queue", help="The target queue.  [default: QUEUE]")
@click.option("--dry-run", is_flag=True, help="Only count the dead letters.")
@click.option("--data", metavar="JSON", help="The new data of the one message in LETTER_IDS.")
@click.option("--body", type=click.File("rb"), help="A file with the new message of the one in LETTER_IDS; - is stdin.")
@click.option(
    "--force", is_flag=True, help="Send records without a valid envelope, too, unchanged. Only with --to-queue."
)
@click.option("--per-second", type=Number(above=True), help="The maximum rate.")
@click.option("--background", is_flag=True, help="Start a job, and print its id.")
@as_json
@connects
def redrive(
    client: Client,
    queue: str,
    letter_ids: Sequence[str],
    chosen: Mapping[str, Any],
    data: str | None,
    body: IO[bytes] | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Send dead letters of QUEUE back: those with LETTER_IDS, those that meet the conditions, or all. An interrupted
    redrive loses nothing and can be repeated."""
    order = {name: value for name, value in options.items() if value}
    if letter_ids and chosen:
        raise click.UsageError("LETTER_IDS and conditions cannot be used together.")
    if data is not None or body is not None:
        if len(letter_ids) != 1 or order.keys() - {"to_queue"} or (data is not None and body is not None):
            raise click.UsageError("--data or --body edits one message: give one LETTER_ID, and at most --to-queue.")
        order["edit"] = {"data": _json("--data", data)} if data is not None else {"body": _json("--body", body)}
        sent = client.redrive_one(queue, letter_ids[0], order)
        print_json(sent) if as_json else say(f"sent back to {sent['to_queue']} with id {sent['id']}")
        return
    result = client.redrive(queue, order | ({"ids": letter_ids} if letter_ids else {"filter": chosen}))
    if as_json:
        print_json(result)
    elif "state" in result:
        say(f"job {result['id']} is {result['state']}")
    else:
        verb, count = ("match", result["matched"]) if result["dry_run"] else ("were sent back", result["redriven"])
        say(f"{count} dead letters {verb}, {result['failed']} failed")
        for each in result["errors"]:
            complain(f"{each['letter_id']}: {each['code']}: {each['detail']}")
        if result["errors_omitted"]:
            complain(f"and {result['errors_omitted']} others")
    if result["failed"]:
        sys.exit(REFUSED)


@dead_letters.command(epilog="\b\nExample:\n  babelgate dead-letters delete emails 5f2b8c0d9e1a47368b7d2c4f6a0e1b93")
@click.argument("queue")
@click.argument("letter_ids", nargs=-1, required=True)
@as_json
@connects
def delete(client: Client, queue: str, letter_ids: Sequence[str], as_json: bool) -> None:
    """Remove the dead letters of QUEUE with LETTER_IDS. They cannot be brought back; `purge` removes all."""
    answer = client.delete_dead_letters(queue, letter_ids)
    if as_json:
        print_json(answer)
    else:
        say(f"{answer['removed']} dead letters removed, {answer['failed']} failed")
        for each in answer["results"]:
            if "code" in each:
                complain(f"{each['letter_id']}: {each['code']}: {each['detail']}")
    if answer["failed"]:
        sys.exit(REFUSED)


@dead_letters.command(
    epilog="\b\nExamples:\n"
    "  babelgate dead-letters jobs emails\n"
    "  babelgate dead-letters jobs emails 0199c7c4f1d47e0a --cancel"
)
@click.argument("queue")
@click.argument("job_id", required=False)
@click.option("--cancel", "action", flag_value="cancel", help="Stop the job.")
@click.option("--resume", "action", flag_value="resume", help="Go on with what is left of the job.")
@as_json
@connects
def jobs(client: Client, queue: str, job_id: str | None, action: str | None, as_json: bool) -> None:
    """List the redrives of QUEUE that run, or ran, in the background; or show the one with JOB_ID."""
    if job_id is None:
        if action:
            raise click.UsageError(f"--{action} needs a JOB_ID.")
        found = client.redrive_jobs(queue)
        if as_json:
            for job in found:
                print_json(job)
            return
        names = ("id", "state", "to_queue", "redriven", "failed")
        rows = [[*map(job.get, names), _time(job["started_at"]), _time(job["updated_at"])] for job in found]
        table(("JOB ID", "STATE", "TO QUEUE", "SENT BACK", "FAILED", "STARTED", "UPDATED"), rows)
        return
    job = client.redrive_job(queue, job_id, action)
    print_json(job) if as_json else fields(job)


def _json(option: str, given: str | IO[bytes] | None) -> Any:
    import msgspec

    from babelgate.jsontext import decoded

    text = given.encode() if isinstance(given, str) else given.read() if given else b""
    try:
        decoded(msgspec.json.Decoder(), text)
    except msgspec.DecodeError:
        raise click.BadParameter("it is not JSON", param_hint=option) from None
    # Decoding and encoding again would change numbers.
    return msgspec.Raw(text)


def _time(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


formerly_redrive = copy(redrive)
"""The command under the name that it had before. It stays out of lists."""
formerly_redrive.hidden = True
formerly_redrive.epilog = "\b\nExample:\n  babelgate redrive emails --reason failed --dry-run"
