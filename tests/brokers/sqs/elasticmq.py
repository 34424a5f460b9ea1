"""A real ElasticMQ server, which keeps its messages in a file.

tests/harness/archives.py fetches it; tests/brokers/classes.py writes the archive of its classes.
"""

from __future__ import annotations

import re
import tempfile
import urllib.error
import urllib.request
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness.archives import ELASTICMQ
from tests.harness.ci import missing
from tests.harness.java import SMALL, JavaServer, ServerProcess, archived, java
from tests.harness.local import free_port
from tests.harness.proxy import Relay

_CONFIGURATION = """
include classpath("application.conf")
node-address {{ protocol = http, host = "127.0.0.1", port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-port = {port}, bind-hostname = "127.0.0.1", sqs-limits = strict }}
rest-stats {{ enabled = false }}
generate-node-address = false
queues-storage {{ enabled = false }}
messages-storage {{
  enabled = {durable}
  driver-class-name = "org.h2.Driver"
  uri = "jdbc:h2:{directory}/messages;WRITE_DELAY=0"
  username = ""
  password = ""
}}
aws {{ region = us-east-1, accountId = 000000000000 }}
pekko.http.server {{ request-timeout = 120 s, idle-timeout = 180 s }}
"""
"""A request that takes longer than its time is answered with 503, and done all the same: on a busy machine, also a long
poll of 20 s."""


class SqsServer(ServerProcess):
    """A server of the service's protocol."""

    def url(self) -> str:
        """The URL of the broker."""
        return f"sqs://us-east-1?endpoint_url=http://127.0.0.1:{self.port}/"

    @abstractmethod
    def stop(self) -> None:
        """End the service."""

    @abstractmethod
    def kill(self) -> None:
        """End it as a power cut would."""


class ElasticMq(SqsServer, JavaServer):
    """A server on a directory of its own.

    :meth:`stop` ends the service and not the process, which answers requests that it no longer stores when it ends.
    """

    title = "ElasticMQ"

    def __init__(self, directory: Path, durable: bool = True) -> None:
        JavaServer.__init__(self, directory)
        self._server_port = server_port = free_port()
        self._relay = Relay(self.port, server_port)
        self._queues: set[str] = set()
        """The queues that there were when it was killed."""
        # What need not be durable is large or much: with both compilers of Java it takes half of the CPU.
        self._compilers = SMALL if durable else ()
        self._configuration = directory / "elasticmq.conf"
        settings = {"port": server_port, "directory": directory, "durable": str(durable).lower()}
        self._configuration.write_text(_CONFIGURATION.format(**settings))

    def __getstate__(self) -> Mapping[str, Any]:
        """Another process has no relay: it does not end the service."""
        return {**super().__getstate__(), "port": self._server_port, "_relay": None}

    def command(self) -> Sequence[str]:
        if not ELASTICMQ.exists():
            missing(self.title, "fetch it with: python -m tests.harness.archives sqs")
        memory = ("-Xms48m", "-Xmx3g")
        settings = f"-Dconfig.file={self._configuration}"
        options = archived(ELASTICMQ) if self.options is None else self.options
        program = ("-cp", f"{ELASTICMQ}/*", "org.elasticmq.server.Main")
        return [java(), *options, *self._compilers, *memory, settings, *program]

    def answers(self) -> bool:
        # It answers before it has read which queues there are.
        return self._queues <= queues(self._server_port) and answers(self._server_port)

    def start(self) -> None:
        JavaServer.start(self)
        self._relay.start()

    def kill(self) -> None:
        """SIGKILL."""
        self._relay.stop()
        if self._process is not None:
            self._queues = queues(self._server_port)
        JavaServer.kill(self)

    def stop(self) -> None:
        """End the service: no connections."""
        self._relay.stop()

    def close(self) -> None:
        """Kill it for good."""
        self.kill()
        self._relay.close()


def queues(port: int) -> set[str]:
    """The URLs of the queues of a server; none if it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/?Action=ListQueues", timeout=5) as answer:
            return set(re.findall(r"<QueueUrl>([^<]*)</QueueUrl>", answer.read().decode()))
    except OSError:
        return set()


def answers(port: int) -> bool:
    """Whether a server of the service's protocol answers there."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/?Action=ListQueues", timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


@contextmanager
def elasticmq(durable: bool = True) -> Iterator[ElasticMq]:
    """A running server in a directory that goes with it. One that is not ``durable`` keeps nothing there."""
    with tempfile.TemporaryDirectory(prefix="babelgate-elasticmq-") as directory:
        server = ElasticMq(Path(directory), durable)
        server.start()
        try:
            yield server
        finally:
            server.close()
