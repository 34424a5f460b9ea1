"""Bodies and journals of any size, as plausible as the figures need, made without holding them in memory."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from msgspec import UNSET

from babelgate.observe.journal.record import JournalEvent, Record, Segment, encode

START = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
_DAY = 86_400_000
_LANGS = "go", "php", "python", "node", "java"
_SEGMENT_RECORDS = 200_000
_FILES = 4


def write_bodies(folder: Path, count: int) -> None:
    """Envelopes of about 400 bytes in four files: 3.5 % break the contract, 40 % are not in the canonical form."""
    folder.mkdir()
    chance = random.Random(1)
    for number in range(_FILES):
        with (folder / f"bodies-{number}.ndjson").open("wb") as file:
            file.writelines(_body(each, chance) for each in range(number, count, _FILES))


def _body(number: int, chance: random.Random) -> bytes:
    fate = chance.random()
    if fate < 0.005:
        return b'{"job":"urn:babel:bench:torn","data":{"number":%d\n' % number
    made = START + number
    envelope = {
        "job": f"urn:babel:bench:job-{number % 7}",
        "trace_id": f"00000000-0000-4000-8000-{number // 3:012d}",
        "data": {"number": number, "name": "Zoë", "lines": [{"sku": f"sku-{at}", "price": 9.5} for at in range(3)]},
        "meta": {
            "id": f"10000000-0000-4000-8000-{number:012d}",
            "queue": f"queue-{number % 4}",
            "lang": _LANGS[number % 5],
            "schema_version": 2 if fate < 0.02 else 1,
            "created_at": str(made) if 0.02 <= fate < 0.035 else made,
        },
        "attempts": 0,
    }
    compact = fate >= 0.435
    text = json.dumps(envelope, ensure_ascii=not compact, separators=(",", ":") if compact else (", ", ": "))
    return text.encode() + b"\n"


def write_journal(landing: Path, messages: int, *, redriven: bool = False) -> int:
    """What a gateway would have landed of a day with so many messages, 95 % of them on one queue; the records.

    ``redriven``: half of the dead letters, one per cent of the messages, are redriven, half of these to another queue.
    """
    landing.mkdir()
    chance = random.Random(2)
    records = (record for number in range(messages) for record in _life(number, messages, chance, redriven))
    first = 1
    while chunk := list(islice(records, _SEGMENT_RECORDS)):
        segment = Segment("bench", f"{START:012x}{'0' * 8}", first)
        path = landing / f"{segment.landed(chunk[0][1])}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wb", 1) as file:
            for seq, (event, at, facts) in enumerate(chunk, first):
                file.write(encode(_record(event, at, facts, segment, seq)) + b"\n")
        first += len(chunk)
    return first - 1


_Facts = tuple[int, int, str | None]
"""Number of the message, failed attempts, outcome."""


def _life(
    number: int, messages: int, chance: random.Random, redriven: bool
) -> Iterator[tuple[JournalEvent, int, _Facts]]:
    at = START + number * (_DAY // 2) // messages
    yield "accepted", at, (number, 0, None)
    attempts = 0
    while True:
        at += int(chance.lognormvariate(5, 1.5))
        yield "delivered", at, (number, attempts, None)
        fate = chance.random()
        if fate >= 0.05:
            yield "acked", at + 20, (number, attempts, "acked")
            return
        if fate < 0.01:
            yield "dead_lettered", at + 20, (number, attempts, "failed")
            yield "rejected", at + 20, (number, attempts, "rejected")
            if redriven and number % 2:
                yield "redriven", at + 40, (number, attempts, None)
            return
        yield "nacked", at + 20, (number, attempts, "nacked")
        attempts += 1


def _record(event: JournalEvent, at: int, facts: _Facts, segment: Segment, seq: int) -> Record:
    number, attempts, outcome = facts
    queue = "hot" if number % 20 else f"cold-{number % 3}"
    is_redrive = event == "redriven"
    return Record(
        1,
        segment.node,
        segment.epoch,
        seq,
        event,
        at,
        queue,
        "main",
        f"urn:babel:bench:job-{number % 7}",
        f"10000000-0000-4000-8000-{number:012d}",
        f"00000000-0000-4000-8000-{number // 3:012d}",
        attempts,
        None if is_redrive else START,
        30.0 if event == "delivered" else None,
        400,
        _LANGS[number % 5],
        outcome,
        ("cold-0" if number % 4 == 1 else queue) if is_redrive else UNSET,
    )
