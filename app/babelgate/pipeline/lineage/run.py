"""Sends the events of a run while it goes on: START, RUNNING of an endless one, then COMPLETE, FAIL or ABORT."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import click

from babelgate.extras import how_to_install, missing
from babelgate.masking import mask_text
from babelgate.pipeline.errors import QualityBroken
from babelgate.pipeline.spark.console import say
from babelgate.pipeline.spark.launch import Note, ignore

if TYPE_CHECKING:
    from openlineage.client.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

    from babelgate.pipeline.lineage.events import RunEvents

END_SECONDS = 5.0
"""The longest that the end of a job waits until its events are sent."""
_MOST_WAITING = 10
"""While this number of events wait for a slow server, those of rounds are left out."""
_SWITCHES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
_PREFIX = "OPENLINEAGE__TRANSPORT"


@contextmanager
def job_run(job: str, description: str, options: Mapping[str, Any], *, running_seconds: float = 60.0) -> Iterator[Note]:
    """Send events of what the block does: a run of the command ``job`` with ``options``, by parameter.

    ``running_seconds``: the least time between two events of the rounds of an endless run.

    Does nothing where OpenLineage is not configured, or for a command that writes nothing. A thread
    sends the events, so that the job never waits for a server. Its end waits at most END_SECONDS. What cannot be sent
    is warned of once.
    """
    run = _begun(job, description, options, running_seconds)
    if run is None:
        yield ignore
        return
    try:
        yield run.note
    except QualityBroken:
        run.end("COMPLETE")
        raise
    except Exception as error:
        message = (
            error.format_message() if isinstance(error, click.ClickException) else f"{type(error).__name__}: {error}"
        )
        run.end("FAIL", message)
        raise
    except BaseException:
        # Ctrl-C.
        run.end("ABORT")
        raise
    else:
        run.end("COMPLETE")


def is_configured() -> bool:
    """Whether the client would find a transport: https://openlineage.io/docs/client/python#configuration"""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    if any(os.environ.get(name) for name in _SWITCHES) or any(name.startswith(_PREFIX) for name in os.environ):
        return True
    # Those of pathlib raise errors, for a folder that may not be read and for a user without a home.
    return any(map(os.path.isfile, ("openlineage.yml", os.path.expanduser("~/.openlineage/openlineage.yml"))))


def _begun(job: str, description: str, options: Mapping[str, Any], running_seconds: float) -> _Run | None:
    if not is_configured():
        return None
    from babelgate.pipeline.lineage.datasets import datasets_of

    try:
        if datasets_of(job, options, {}) is None:
            return None
        if missing(("openlineage",)):
            say(f"warning: OpenLineage is configured, and its client is not installed: {how_to_install('openlineage')}")
            return None
        from babelgate.pipeline.lineage.events import RunEvents

        streaming = options.get("every") is not None
        events = RunEvents(job, description, options, streaming=streaming)
        return _Run(events, _client(), running_seconds if streaming else None)
    except Exception as error:
        # Whatever the client makes of its configuration, the job is right without it.
        say(f"warning: no OpenLineage events: {_text(error)}")
        return None


def _client() -> OpenLineageClient:
    from openlineage.client.client import OpenLineageClient

    if not os.environ.get("OPENLINEAGE_CLIENT_LOGGING"):
        # Its warnings have values of variables, and logging writes them to standard error where no handler takes them.
        log = logging.getLogger("openlineage")
        log.addHandler(logging.NullHandler())
        log.propagate = False
    before = dict(os.environ)
    try:
        client = OpenLineageClient()
    finally:
        # It sets variables for itself, one with the API key, which Spark would hand on.
        for name in [each for each in os.environ if each.startswith("OPENLINEAGE__")]:
            if name not in before:
                del os.environ[name]
            else:
                os.environ[name] = before[name]
    if client.transport.kind == "console":
        if not (client.config.transport or {}).get("type"):
            say("warning: the client of OpenLineage finds no transport in its configuration, so no events are sent")
        elif not os.environ.get("OPENLINEAGE_CLIENT_LOGGING"):
            # The transport `console` logs events at INFO.
            console = logging.getLogger("openlineage.client.transport.console")
            console.handlers, console.propagate = [_ShownEvents()], False
            console.setLevel(logging.INFO)
    return client


class _ShownEvents(logging.Handler):
    """Prints to the standard error of the moment, because the log of Spark takes the place of the first one."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


class _Run:
    def __init__(self, events: RunEvents, client: OpenLineageClient, running_seconds: float | None) -> None:
        """``running_seconds``: None for a run that ends by itself."""
        self._events = events
        self._running_seconds = running_seconds
        self._facts: Mapping[str, Any] = {}
        self._sender = _Sender(client)
        self._sent_at = time.monotonic()
        self._send("START")

    def note(self, facts: Mapping[str, Any]) -> None:
        """Keep ``facts`` for the last event. An endless run sends them, too, if it is time."""
        self._facts = facts
        if self._running_seconds is None or self._sender.is_full:
            return
        if time.monotonic() - self._sent_at >= self._running_seconds:
            self._sent_at = time.monotonic()
            self._send("RUNNING")

    def end(self, state: str, message: str | None = None) -> None:
        """Send the last event, and wait for the sender, at most END_SECONDS."""
        self._send(state, None if message is None else mask_text(message))
        self._sender.close(END_SECONDS)

    def _send(self, state: str, message: str | None = None) -> None:
        try:
            self._sender.put(self._events.event(state, self._facts, message))
        except Exception as error:
            say(f"warning: an OpenLineage event could not be made: {_text(error)}")


class _Sender:
    """A thread that sends events in order. The end of the process does not wait for it."""

    def __init__(self, client: OpenLineageClient) -> None:
        self._client = client
        self._events: SimpleQueue[RunEvent | None] = SimpleQueue()
        self._failure = ""
        self._has_warned = False
        self._thread = threading.Thread(target=self._run, name="openlineage", daemon=True)
        self._thread.start()

    @property
    def is_full(self) -> bool:
        """Whether the server is so slow that events wait."""
        return self._events.qsize() >= _MOST_WAITING

    def put(self, event: RunEvent) -> None:
        """Send ``event`` after those before it, and return at once."""
        self._warn(self._failure)
        self._events.put(event)

    def close(self, seconds: float) -> None:
        """Wait until all events are sent, at most ``seconds``."""
        self._events.put(None)
        self._thread.join(seconds)
        self._warn(self._failure or (f"no answer within {seconds:.0f} s" if self._thread.is_alive() else ""))

    def _warn(self, failure: str) -> None:
        if failure and not self._has_warned:
            say(f"warning: an OpenLineage event was not sent: {failure}")
            self._has_warned = True

    def _run(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._client.emit(event)
            except Exception as error:
                # It is reported by the thread of the job, whose standard error may be redirected meanwhile.
                self._failure = self._failure or _text(error)
        with suppress(Exception):
            self._client.close(END_SECONDS)


def _text(error: Exception) -> str:
    return mask_text(f"{type(error).__name__}: {error}").replace("\n", " ")
