"""The emulator's process, and its control API as Python methods."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness.local import free_ports, suspend
from tools.servicebus_emulator import broker_url, connection_string

_READY_SECONDS = 120.0
DEAD_LETTERS = "/$DeadLetterQueue"


class ServiceBusEmulator:
    """A server on a directory and on two ports of its own; it keeps both across restarts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, self.control_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._log = directory / "servicebus-emulator.log"

    def __getstate__(self) -> Mapping[str, Any]:
        """The server for another process, which uses it and does not end it."""
        return vars(self) | {"_process": None}

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    def connection_string(self, port: int | None = None) -> str:
        """A connection string of the SDK; ``port`` is that of a proxy in front of the server."""
        return connection_string(port or self.port)

    @property
    def admin_url(self) -> str:
        """Where the descriptions of queues are."""
        return f"http://127.0.0.1:{self.control_port}/"

    def url(self, port: int | None = None) -> str:
        """The URL of the broker; ``port`` is that of a proxy in front of the server."""
        return broker_url(port or self.port, self.control_port)

    def start(self) -> None:
        """Start on what the directory holds, unless the process runs; returns when it answers."""
        if self._process is None:
            arguments = [sys.executable, "-m", "tools.servicebus_emulator"]
            arguments += ["--port", str(self.port), "--control", str(self.control_port)]
            arguments += ["--data", str(self.directory / "servicebus-emulator.sqlite")]
            root = Path(__file__).resolve().parents[3]
            with self._log.open("ab") as output:
                self._process = subprocess.Popen(arguments, cwd=root, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + _READY_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                log = self._log.read_text("utf-8", "replace")[-2000:]
                raise RuntimeError(f"The emulator of Azure Service Bus did not start:\n{log}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            self.state()
        except (OSError, http.client.HTTPException):
            return False
        return True

    def ensure(self) -> None:
        """Start it or resume it."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        if self._process is not None:
            self.resume()
        self.start()

    def stop(self) -> None:
        """SIGTERM: it keeps everything."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            if number != signal.SIGKILL:
                process.send_signal(signal.SIGCONT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(60)

    def pause(self) -> None:
        """SIGSTOP: connections stay, answers stop."""
        suspend(self.pid)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    # The control API.

    def call(self, method: str, name: str, given: Mapping[str, Any] | None = None) -> Any:
        """A request of the control API."""
        connection = http.client.HTTPConnection("127.0.0.1", self.control_port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, f"/control/{name}", json.dumps(dict(given or {})))
            response = connection.getresponse()
            body = response.read()
        if response.status != 200:
            raise ValueError(f"{method} {name}: {response.status} {body.decode('utf-8', 'replace')}")
        return json.loads(body)

    def state(self) -> dict[str, Any]:
        """Settings, clock, queues and counters of the whole emulator."""
        return dict(self.call("GET", "state"))

    def options(self, **values: Any) -> dict[str, Any]:
        """Change the emulator's own settings; see ``Options``."""
        return dict(self.call("POST", "options", values))

    def defaults(self, **values: Any) -> dict[str, Any]:
        """Change the settings of queues that are created from now on; see ``QueueSettings``."""
        return dict(self.call("POST", "defaults", values))

    def queue(self, name: str, **settings: Any) -> dict[str, Any]:
        """Create a queue, or change its settings; see ``QueueSettings``."""
        return dict(self.call("POST", "queue", {"name": name, "settings": settings}))

    def delete_queue(self, name: str) -> bool:
        """Remove a queue with all that it holds."""
        return bool(self.call("DELETE", "queue", {"name": name}))

    def advance(self, seconds: float) -> None:
        """Move the broker's clock."""
        self.call("POST", "advance", {"seconds": seconds})

    def messages(self, entity: str) -> list[dict[str, Any]]:
        """Every stored message of a queue or a subqueue with all its fields, by sequence number."""
        return list(self.call("GET", "messages", {"entity": entity}))

    def inject(self, entity: str, *bodies: bytes, raw: bool = False) -> list[int]:
        """Store messages of one data section each, or with ``raw`` whole encoded messages."""
        member = "raw" if raw else "body"
        return self.inject_fields(entity, [{member: base64.b64encode(body).decode()} for body in bodies])

    def inject_fields(self, entity: str, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Store messages of fields; see ``control.encoded``. Returns the sequence numbers."""
        return list(self.call("POST", "inject", {"entity": entity, "messages": [dict(each) for each in messages]}))

    def purge(self, entity: str) -> int:
        """Remove every message."""
        return int(self.call("POST", "purge", {"entity": entity}))

    def counts(self, queue: str) -> dict[str, int]:
        """``active`` (with locked and deferred ones), ``scheduled``, ``dead_letter`` and ``total``."""
        return dict(self.call("GET", "counts", {"queue": queue}))

    def entity(self, entity: str) -> dict[str, Any]:
        """The links of an entity with their credit, its number of locks and its counters."""
        return dict(self.call("GET", "entity", {"entity": entity}))

    def credit(self, entity: str) -> int:
        """The credit of all links that receive from the entity."""
        links = self.entity(entity)["links"]
        return sum(link["credit"] for link in links if link["role"] == "receiver")

    def fault(
        self, kind: str, entity: str | None = None, *, times: int | None = None, operation: str | None = None
    ) -> int:
        """Switch a fault on, for the next ``times`` occurrences or until it is cleared; returns its id."""
        given = {"kind": kind, "entity": entity, "times": times, "operation": operation}
        return int(self.call("POST", "faults", given)["id"])

    def faults(self) -> list[dict[str, Any]]:
        """The faults that are on, and those that are used up, with their hits."""
        return list(self.call("GET", "faults"))

    def clear_faults(self, identifier: int | None = None) -> None:
        """Switch one fault off, or all."""
        self.call("DELETE", "faults", {} if identifier is None else {"id": identifier})

    def lose_lock(self, entity: str, token: str | None = None) -> int:
        """End a lock, or all locks of an entity, as a failed delivery; returns how many."""
        return int(self.call("POST", "lose_lock", {"entity": entity, "token": token}))

    def detach(self, entity: str, condition: str = "amqp:link:detach-forced", kind: str | None = None) -> int:
        """Close the links of an entity with an error; ``kind`` is "sender", "receiver" or "replies"."""
        return int(self.call("POST", "detach", {"entity": entity, "condition": condition, "kind": kind}))

    def disconnect(self) -> int:
        """Drop every connection; returns how many."""
        return int(self.call("POST", "disconnect"))

    def reset(self) -> None:
        """Remove all queues and faults, and set everything back to its default."""
        self.call("POST", "reset")


@contextmanager
def emulator(directory: Path | None = None) -> Iterator[ServiceBusEmulator]:
    """A running server; without a directory, in one that goes with it."""
    with contextlib.ExitStack() as stack:
        if directory is None:
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="babelgate-servicebus-"))
            directory = Path(name)
        server = ServiceBusEmulator(directory)
        stack.callback(server.kill)
        server.start()
        yield server
