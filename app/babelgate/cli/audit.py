"""The commands ``audit check`` and ``audit show``, which read the files of the trail and need no running gateway."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from babelgate.cli.connection import CONFIG, as_json
from babelgate.cli.output import REFUSED, complain, configuration_errors, print_json, say, table

if TYPE_CHECKING:
    from babelgate.observe.audit.lines import AuditKey, Head

_DIRECTORY = click.argument(
    "directory", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False, dir_okay=True)
)


@click.group()
def audit() -> None:
    """Check and show the audit trail of this host."""


@audit.command(epilog="\b\nExample:\n  babelgate audit check --config babelgate.yaml")
@_DIRECTORY
@CONFIG
@click.option("--no-key", is_flag=True, help="Check the hashes and not the seals, where the keys are not at hand.")
@click.option(
    "--expect",
    metavar="CHAIN=SEQ:HASH",
    multiple=True,
    help="The chain had this record: an end that the log of a gateway, or an earlier check, has printed.",
)
@as_json
def check(directory: Path | None, config: Path | None, no_key: bool, expect: Sequence[str], as_json: bool) -> None:
    """Find lines that were removed, changed, reordered or inserted.

    DIRECTORY: by default that of the configuration, which also has the keys. Gateways may run meanwhile. Exits with 1
    if something is wrong.
    """
    from msgspec.structs import asdict

    from babelgate.observe.audit import checking

    expected = dict(_expected(each) for each in expect)
    directory, keys = _place(directory, config, needs_keys=not no_key)
    try:
        report = checking.check(directory, keys, expected)
    except OSError as error:
        complain(f"{error.filename or directory}: {error.strerror or error}")
        sys.exit(REFUSED)
    if as_json:
        for chain in report.chains:
            print_json({"type": "chain", **asdict(chain)})
        for problem in report.problems:
            print_json({"type": "problem", **asdict(problem)})
    else:
        table(
            ("CHAIN", "FILES", "RECORDS", "FIRST", "LAST", "HASH OF THE LAST"),
            [(each.name, each.files, each.records, each.first, each.last, each.hash) for each in report.chains],
        )
        for chain in report.chains:
            if chain.interruptions:
                say(
                    f"{chain.name}: {chain.interruptions} times a process ended within a line; the next one recorded it"
                )
            if chain.torn_bytes:
                say(f"{chain.name}: the last line has no end: it is being written, or its process was killed")
        if not report.sealed:
            say("The seals were not checked: who can write the files can have made all of this.")
        for problem in report.problems:
            complain(f"{_where(problem.file, problem.line)}: {problem.kind}: {problem.detail}")
        if report.omitted:
            complain(f"{report.omitted:,} more problems")
    if report.problems:
        sys.exit(REFUSED)
    if not report.chains:
        complain(f"{directory} has no audit trail")
        sys.exit(REFUSED)


@audit.command(epilog="\b\nExample:\n  babelgate audit show --config babelgate.yaml --queue emails --caller ops")
@_DIRECTORY
@CONFIG
@click.option("--queue", help="Only records of this queue.")
@click.option("--caller", help="Only records of this caller.")
@click.option("--kind", help="Only this kind: operation, refusal, sign_in, sign_out, start and others.")
@click.option("--after", type=int, metavar="MS", help="Only records from this time on, in Unix milliseconds.")
@click.option("--before", type=int, metavar="MS", help="Only records before this time, in Unix milliseconds.")
@as_json
def show(
    directory: Path | None,
    config: Path | None,
    queue: str | None,
    caller: str | None,
    kind: str | None,
    after: int | None,
    before: int | None,
    as_json: bool,
) -> None:
    """Print records, chain by chain, in the order in which they were written. Checks nothing.

    DIRECTORY: by default that of the configuration.
    """
    directory, _ = _place(directory, config, needs_keys=False)
    wanted = {"queue": queue, "caller": caller, "kind": kind}
    rows = []
    for members in _records(directory):
        at = members.get("at", 0)
        if any(value is not None and members.get(name) != value for name, value in wanted.items()):
            continue
        if (after is not None and at < after) or (before is not None and at >= before):
            continue
        if as_json:
            print_json(members)
        else:
            rows.append(_row(members))
    if not as_json:
        table(("TIME (UTC)", "KIND", "CALLER", "ADDRESS", "OPERATION", "QUEUE", "STATUS", "DETAILS"), rows)


def _row(members: dict[str, Any]) -> tuple[object, ...]:
    from babelgate.clock import utc_text

    details = " ".join(
        f"{name}={value}" for name, value in members.get("details", {}).items() if not isinstance(value, dict | list)
    )
    return (
        utc_text(members.get("at", 0), "milliseconds"),
        members.get("kind"),
        members.get("caller"),
        members.get("address"),
        members.get("operation") or members.get("path"),
        members.get("queue"),
        members.get("code") or members.get("status"),
        details or None,
    )


def _records(directory: Path) -> Iterator[dict[str, Any]]:
    from babelgate.observe.audit.lines import files_of, members_of

    for paths in files_of(directory).values():
        for _, path in paths:
            with open(path, "rb") as file:
                for line in file:
                    if (members := members_of(line.rstrip(b"\n"))) is not None:
                        yield members


def _place(directory: Path | None, config: Path | None, *, needs_keys: bool) -> tuple[Path, Sequence[AuditKey]]:
    """The directory of the trail, and its keys; no key where none is needed."""
    from babelgate.config import settings
    from babelgate.config.token_keys import KEY_FILE
    from babelgate.server.auditing import audit_keys

    if directory is not None and not needs_keys:
        return directory, ()
    with configuration_errors(config):
        loaded = settings.load(config, os.environ)
        directory = directory or loaded.audit.directory
        if directory is None:
            complain("no audit trail is configured: set audit.directory, or name the directory")
            sys.exit(REFUSED)
        if not needs_keys:
            return directory, ()
        if not loaded.token_keys and not (loaded.state_dir / KEY_FILE).exists():
            complain(f"{loaded.state_dir} has no {KEY_FILE}: give the configuration of the gateway, or --no-key")
            sys.exit(REFUSED)
        return directory, audit_keys(loaded)


def _expected(text: str) -> tuple[str, Head]:
    from babelgate.observe.audit.lines import Head

    chain, _, end = text.rpartition("=")
    seq, _, hash = end.partition(":")
    if not chain or not seq.isdecimal() or len(hash) != 64:
        raise click.UsageError(f"--expect {text}: must be CHAIN=SEQ:HASH, such as gateway-0=17:3f5a…")
    return chain, Head(int(seq), hash)


def _where(file: str, line: int | None) -> str:
    return file if line is None else f"{file}, line {line}"
