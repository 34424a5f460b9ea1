"""Parses and checks the options of the data source ``babelgate``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from babelgate.errors import ConfigError
from babelgate.jsontext import digits
from babelgate.pipeline.send.bodies import is_queue
from babelgate.pipeline.send.gateway import Target, url_fault
from babelgate.privacy.body_keys import read_body_keys

LOCAL_URL = "http://127.0.0.1:8080"
MAX_PEEKED = 100
"""The API's own maximum."""

MAX_WAIT_SECONDS = 30.0
"""The API's own maximum."""
_OF_READING = ("limit", "max_messages", "wait_seconds", "lease_seconds")
_OF_WRITING = ("body_column", "key_column", "run_id", "max_rate", "give_up_seconds")
_OF_A_QUEUE = ("queue", "url", "token", *_OF_READING, *_OF_WRITING)
_OF_A_JOURNAL = ("path", "max_segments", "corrupt", "body_keys")
# Spark passes these to every source.
_OF_SPARK = ("checkpointlocation",)
_RUN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


class SourceOptions(NamedTuple):
    """The parsed options; one of ``queue`` and ``path`` is set. ``max_rate``: messages/s per task, None: no bound.

    ``max_messages``: of a batch of a stream; ``lease_seconds``: None: the queue's own; ``body_keys``: id and secret of
    the keys of encrypted bodies.
    """

    queue: str | None
    path: str | None
    target: Target
    limit: int = MAX_PEEKED
    max_segments: int = 1000
    skip_corrupt: bool = False
    body_column: str = "body"
    key_column: str | None = None
    run_id: str | None = None
    max_rate: float | None = None
    give_up_seconds: float = 90.0
    max_messages: int = 1000
    wait_seconds: float = 1.0
    lease_seconds: float | None = None
    body_keys: tuple[tuple[str, bytes], ...] = ()


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Parses options with lower-case names. Raises ValueError that lists everything that is wrong."""
    wrong: list[str] = []
    known = {*_OF_A_QUEUE, *_OF_A_JOURNAL}
    for name in sorted(given.keys() - known - set(_OF_SPARK)):
        wrong.append(f"there is no option {name}; there are {', '.join(sorted(known))}")
    queue, path = given.get("queue"), given.get("path")
    if (queue is None) == (path is None):
        wrong.append("set either queue, to peek into or write to it, or path, to read a journal")
    else:
        strange = set(_OF_A_QUEUE if queue is None else _OF_A_JOURNAL) & given.keys()
        wrong += [f"{name} is no option of {'a journal' if queue is None else 'a queue'}" for name in sorted(strange)]
    if queue is not None and not is_queue(queue):
        wrong.append(f"queue {queue!r} is no valid queue name")
    url = given.get("url") or os.environ.get("BABELGATE_URL") or LOCAL_URL
    fault = url_fault(url)
    if fault is not None:
        wrong.append(f"url: {fault}")
    token = (given.get("token") or os.environ.get("BABELGATE_TOKEN") or "").strip()
    if not (token.isascii() and token.isprintable()):
        wrong.append("token is not one line of ASCII")
    run_id = given.get("run_id")
    if run_id is not None and not _RUN_ID.fullmatch(run_id):
        wrong.append("run_id is not 1 to 64 letters, digits, dots, dashes and underscores")
    corrupt = given.get("corrupt", "fail")
    if corrupt not in ("fail", "skip"):
        wrong.append(f"corrupt is fail or skip, not {corrupt!r}")
    limit = _integer(given, "limit", MAX_PEEKED, MAX_PEEKED, wrong)
    max_segments = _integer(given, "max_segments", 1000, 1_000_000, wrong)
    max_rate = _seconds(given, "max_rate", wrong)
    give_up = _seconds(given, "give_up_seconds", wrong)
    max_messages = _integer(given, "max_messages", 1000, 100_000, wrong)
    wait = _seconds(given, "wait_seconds", wrong)
    if wait is not None and wait > MAX_WAIT_SECONDS:
        wrong.append(f"wait_seconds is at most {MAX_WAIT_SECONDS:.0f}, not {wait:g}")
    lease = _seconds(given, "lease_seconds", wrong)
    keys = () if path is None else _body_keys(given.get("body_keys"), wrong)
    if wrong:
        raise ValueError("; ".join(wrong))
    return SourceOptions(
        queue=queue,
        path=path,
        target=Target(url, token or None),
        limit=limit,
        max_segments=max_segments,
        skip_corrupt=corrupt == "skip",
        body_column=given.get("body_column", "body"),
        key_column=given.get("key_column"),
        run_id=run_id,
        max_rate=max_rate,
        give_up_seconds=90.0 if give_up is None else give_up,
        max_messages=max_messages,
        wait_seconds=1.0 if wait is None else wait,
        lease_seconds=lease,
        body_keys=keys,
    )


def _body_keys(file: str | None, wrong: list[str]) -> tuple[tuple[str, bytes], ...]:
    try:
        return tuple((key.id, key.secret) for key in read_body_keys(None if file is None else Path(file)))
    except ConfigError as error:
        wrong.append(f"body_keys: {error}")
        return ()


def _integer(given: Mapping[str, str], name: str, default: int, most: int, wrong: list[str]) -> int:
    text = given.get(name, str(default))
    number = digits(text)
    if number is None or not 1 <= number <= most:
        wrong.append(f"{name} is an integer from 1 to {most}, not {text!r}")
        return default
    return number


def _seconds(given: Mapping[str, str], name: str, wrong: list[str]) -> float | None:
    if name not in given:
        return None
    try:
        value = float(given[name])
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        wrong.append(f"{name} is a number above 0, not {given[name]!r}")
        return None
    return value
