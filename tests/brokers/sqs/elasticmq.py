"""A real ElasticMQ server, which keeps its messages in a file.

``python -m tests.brokers.sqs.elasticmq`` lets Maven fetch it once; the tests only read it.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.ci import missing
from tests.harness.local import free_port, suspend
from tests.harness.proxy import Relay

_HOME = Path(__file__).resolve().parents[3] / ".brokers" / "elasticmq"
_POM = Path(__file__).with_name("pom.xml")
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_READY_SECONDS = 120.0

_CONFIGURATION = """
include classpath("application.conf")
node-address {{ protocol = http, host = "127.0.0.1", port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-port = {port}, bind-hostname = "127.0.0.1", sqs-limits = strict }}
rest-stats {{ enabled = false }}
generate-node-address = false
queues-storage {{ enabled = false }}
messages-storage {{
  enabled = true
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

_JAVA = ("-Xms48m", "-Xmx3g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def fetch() -> None:
    """Copy the jars out of Maven's cache, unless they are here."""
    if not list(_HOME.glob("elasticmq-server_*.jar")):
        command = ["mvn", "--quiet", "--batch-mode", "--file", str(_POM), _COPY, "-DincludeScope=runtime"]
        subprocess.run([*command, f"-DoutputDirectory={_HOME}"], check=True)


class SqsServer(ABC):
    """A server of the service's protocol, on a port of its own."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    def url(self) -> str:
        """The URL of the broker."""
        return f"sqs://us-east-1?endpoint_url=http://127.0.0.1:{self.port}/"

    @abstractmethod
    def start(self) -> None:
        """Begin the service, unless it runs; returns when it answers."""

    def ensure(self) -> None:
        """Begin or resume the service."""
        if self._process is not None:
            self.resume()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay, answers stop."""
        suspend(self.pid)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class ElasticMq(SqsServer):
    """A server on a directory of its own.

    :meth:`stop` ends the service and not the process, which answers requests that it no longer stores when it ends.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self._server_port = server_port = free_port()
        self._relay = Relay(self.port, server_port)
        self._queues: set[str] = set()
        """The queues that there were when it was killed."""
        self._configuration = directory / "elasticmq.conf"
        self._configuration.write_text(_CONFIGURATION.format(port=server_port, directory=directory))

    def start(self) -> None:
        if self._process is None:
            self._begin()
        self._relay.start()

    def _begin(self) -> None:
        java = shutil.which("java")
        if java is None or not list(_HOME.glob("elasticmq-server_*.jar")):
            missing("ElasticMQ", "fetch it with: python -m tests.brokers.sqs.elasticmq")
        log = self.directory / "elasticmq.log"
        arguments = [java, *_JAVA]
        arguments += [f"-Dconfig.file={self._configuration}", "-cp", f"{_HOME}/*", "org.elasticmq.server.Main"]
        with log.open("ab") as output:
            self._process = subprocess.Popen(arguments, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + _READY_SECONDS
        # It answers before it has read which queues there are.
        while not self._queues <= queues(self._server_port) or not answers(self._server_port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"ElasticMQ did not start:\n{log.read_text('utf-8', 'replace')[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL."""
        self._relay.stop()
        if self._process is not None:
            self._queues = queues(self._server_port)
            self._process.kill()
            self._process.wait(60)
            self._process = None

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
def elasticmq() -> Iterator[ElasticMq]:
    """A running server in a directory that goes with it."""
    with tempfile.TemporaryDirectory(prefix="babelgate-elasticmq-") as directory:
        server = ElasticMq(Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.close()


if __name__ == "__main__":
    fetch()
