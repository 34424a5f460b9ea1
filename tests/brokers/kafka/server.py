"""A real Kafka server: one node that is broker and controller.

tests/harness/archives.py fetches it; tests/brokers/classes.py writes the archive of its classes, and so an empty store.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.harness.archives import KAFKA
from tests.harness.ci import missing
from tests.harness.java import SMALL, JavaServer, archived, java
from tests.harness.local import free_port

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A member that is killed is missed soon.
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    # The answer to a heartbeat may take as long: a busy machine is late, and a member that misses two answers while the
    # group changes twice is fenced, with its leases.
    "group.consumer.heartbeat.interval.ms": "5000",
    # A new member gets its partitions at once.
    "group.consumer.assignment.interval.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
    # The largest body that the gateway takes, and its headers.
    "message.max.bytes": "1114112",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "auto.create.topics.enable": "false",
    # The envelopes of the tests are as old as their examples.
    "log.retention.ms": "-1",
    # After a restart it leads its partitions soon.
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "3000",
    # What is confirmed survives a power cut of the only node.
    "log.flush.interval.messages": "1",
}

_EMPTY = KAFKA / "empty"
"""An empty store. It does not depend on a server's settings: those that all have name its only controller."""

_LOGGING = """
status = ERROR
appender.c.type = Console
appender.c.name = C
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1} %m%n
rootLogger.level = WARN
rootLogger.appenderRef.c.ref = C
"""


class KafkaServer(JavaServer):
    """A server on a directory of its own. ``settings`` are added to its own.

    ``listeners``: the security protocols of further listeners, by name; ``ports`` has the port of each. A client
    connects to the address that the broker names, so that the listener ``PROXIED`` names ``proxy_port``.
    """

    title = "Kafka"

    def __init__(
        self, directory: Path, settings: Mapping[str, str] | None = None, listeners: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory)
        controller = free_port()
        protocols = {"PLAINTEXT": "PLAINTEXT", "PROXIED": "PLAINTEXT", **(listeners or {})}
        self.ports = {name: free_port() for name in ("PROXIED", *(listeners or ()))}
        self.proxy_port = free_port()
        ports = {"PLAINTEXT": self.port, **self.ports}
        ours = {
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": _addresses(ports | {"CONTROLLER": controller}),
            "advertised.listeners": _addresses(ports | {"PROXIED": self.proxy_port}),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in {**protocols, "CONTROLLER": "PLAINTEXT"}.items()
            ),
            "log.dirs": str(directory / "data"),
        }
        self._properties = directory / "server.properties"
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in (_SETTINGS | ours | dict(settings or {})).items()))
        self._logging = directory / "log4j2.properties"
        self._logging.write_text(_LOGGING)
        self._admin: AdminClient | None = None

    def url(self) -> str:
        """The URL of the broker."""
        return f"kafka://127.0.0.1:{self.port}/"

    def command(self) -> Sequence[str]:
        if not KAFKA.exists():
            missing(self.title, "fetch it with: python -m tests.harness.archives kafka")
        settings = f"-Dlog4j2.configurationFile={self._logging}"
        program = [*SMALL, "-Xms128m", "-Xmx320m", settings, "-cp", f"{KAFKA}/*"]
        if not (self.directory / "data").exists():
            self._format(program)
        options = archived(KAFKA) if self.options is None else self.options
        return [java(), *options, *program, "kafka.Kafka", str(self._properties)]

    def _format(self, program: Sequence[str]) -> None:
        """Make an empty store: a copy of the first that was made, because the tool takes as long as a start."""
        if not _EMPTY.exists():
            format_ = ["format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._properties)]
            subprocess.run([java(), *program, "kafka.tools.StorageTool", *format_], check=True, capture_output=True)
            with tempfile.TemporaryDirectory(dir=KAFKA) as folder, contextlib.suppress(OSError):
                # Another process may have been faster.
                shutil.copytree(self.directory / "data", Path(folder) / "empty").rename(_EMPTY)
        else:
            shutil.copytree(_EMPTY, self.directory / "data")

    def answers(self) -> bool:
        try:
            AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": 0}).list_topics(timeout=2)
        except KafkaException:
            return False
        return True


def _addresses(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


@contextmanager
def kafka(
    settings: Mapping[str, str] | None = None, listeners: Mapping[str, str] | None = None
) -> Iterator[KafkaServer]:
    """A running server in a directory that goes with it."""
    with tempfile.TemporaryDirectory(prefix="babelgate-kafka-", ignore_cleanup_errors=True) as directory:
        server = KafkaServer(Path(directory), settings, listeners)
        server.start()
        try:
            yield server
        finally:
            server.kill()
