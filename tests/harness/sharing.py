"""One server of each broker that all workers share, for tests that only use it.

The process that distributes the tests to workers starts the servers and ends them. A test that stops, pauses or fills a
server, or that lists what all tests have on it, has a server of its worker's own.
"""

from __future__ import annotations

import pickle
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.harness.broker import Broker
from tests.harness.ci import starting

KINDS = ("servicebus", "sqs", "artemis", "rabbitmq", "kafka", "pulsar")
"""The brokers with a server that all workers share: those that start fast come first. Redis starts in an instant and is
emptied for each test, so that each worker has its own."""

_SHARING = re.compile(
    r"tests/(brokers/\w+/test_contract|brokers/test_versions|e2e/test_kill|e2e/test_tracing"
    r"|brokers/kafka/test_(conformance|message|push_order|removed|topics|transactions)"
    r"|brokers/pulsar/test_(browse|checksums|client|conformance|interop|lookups|metadata|official_clients|push_order"
    r"|rejected_client|two_receives))\.py::"
)
_ALONE = re.compile(
    r".*(::Test(Hung::\w+"
    r"|Life::test_(a_restart_of_the_broker_\w+|a_killed_broker_\w+|an_outage_\w+|the_overview_agrees)"
    r"|Operators::test_(a_queue_is_listed_\w+|the_list_is_paged))"
    r"|\[sqs-moto)"
)
"""Of the tests that match :data:`_SHARING`, those that stop or pause the server or list all queues, and those on the
second server of a protocol."""

_DISTURBING = {
    *("start", "ensure", "stop", "kill", "pause", "resume", "close", "settle_down", "stop_app", "start_app", "alarm"),
    *("management", "configured", "set_policy", "options", "defaults", "advance", "disconnect", "reset"),
}
"""What tests of their own servers do with them, and others would notice."""

_START_SECONDS = 600
"""How long all servers may take to start, one after the other, on a busy machine."""


def shares(nodeid: str) -> bool:
    """Whether a test only uses its brokers, so that it can share their servers with others."""
    return _SHARING.match(nodeid) is not None and _ALONE.match(nodeid) is None


class Lent:
    """A shared server as a test has it: with the attributes of the server, but for those that disturb others."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        if name in _DISTURBING:
            raise AssertionError(f"{name}() disturbs tests that share the server: see tests/harness/sharing.py")
        return getattr(self._server, name)


class SharedServers:
    """Starts servers in the background, one after the other, and ends them all in :meth:`close`.

    Other processes find them by ``directory``: for each kind a file that says that it is being started, and then a
    file with the server, or with the reason why there is none.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="babelgate-servers-")
        self.directory = Path(self._folder.name)
        self._ended = Event()
        self._thread: Thread | None = None

    def start(self, brokers: Iterable[type[Broker]]) -> None:
        """Start the servers of these brokers, each a kind of its own; does nothing when called again."""
        if self._thread is None:
            started = list(brokers)
            for broker in started:
                _announcement(self.directory, broker.kind).touch()
            self._thread = Thread(target=self._serve, args=(started,))
            self._thread.start()

    def is_ready(self, kind: str) -> bool:
        """Whether a test would not wait for the server of this kind."""
        return _result(self.directory, kind).exists() or not _announcement(self.directory, kind).exists()

    def close(self) -> None:
        """End all servers, once the one that is starting has started."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._folder.cleanup()

    def _serve(self, brokers: Sequence[type[Broker]]) -> None:
        with ExitStack() as stack:
            for broker in brokers:
                if self._ended.is_set():
                    break
                home = self.directory / f"{broker.kind}.home"
                home.mkdir()
                found: Any
                try:
                    with starting(broker.kind):
                        # No test ends it, so that nothing has to survive that.
                        found = stack.enter_context(broker.serve(home, durable=False))
                except BaseException as error:
                    # A server that is not installed skips or fails the tests that need it.
                    found = _Absent(type(error).__name__, str(error))
                unfinished = self.directory / f"{broker.kind}.unfinished"
                unfinished.write_bytes(pickle.dumps(found))
                unfinished.rename(_result(self.directory, broker.kind))
            self._ended.wait()


def find(directory: Path, kind: str) -> Lent | None:
    """The server of this kind that another process has started or is starting; None if it does not.

    Waits until it runs. What kept it from running is raised.
    """
    if not _announcement(directory, kind).exists():
        return None
    deadline = time.monotonic() + _START_SECONDS
    while not _result(directory, kind).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"The server of {kind} that all workers share has not started.")
        time.sleep(0.05)
    found = pickle.loads(_result(directory, kind).read_bytes())
    if isinstance(found, _Absent):
        raise _REASONS.get(found.error, RuntimeError)(found.reason)
    return Lent(found)


@dataclass(frozen=True, slots=True)
class _Absent:
    """Why there is no server."""

    error: str
    reason: str


_REASONS: Mapping[str, Callable[[str], BaseException]] = {
    "Skipped": pytest.skip.Exception,
    "Failed": partial(pytest.fail.Exception, pytrace=False),
}
"""What a test is told by the name of what was raised, which cannot be given to another process."""


def _announcement(directory: Path, kind: str) -> Path:
    return directory / f"{kind}.starting"


def _result(directory: Path, kind: str) -> Path:
    return directory / f"{kind}.pickle"
