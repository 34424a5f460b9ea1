"""A real Artemis server, which stores what it confirms before it does.

tests/harness/archives.py fetches it; tests/brokers/classes.py writes the archive of its classes.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.harness.archives import ARTEMIS
from tests.harness.ci import missing
from tests.harness.java import SMALL, JavaServer, archived, java
from tests.harness.local import free_port

_CONFIGURATION = """<configuration xmlns="urn:activemq">
 <core xmlns="urn:activemq:core">
  <name>tests</name>
  <journal-type>NIO</journal-type>
  <journal-file-size>1M</journal-file-size>
  <journal-min-files>2</journal-min-files>
  <journal-pool-files>4</journal-pool-files>
  <journal-buffer-timeout>200000</journal-buffer-timeout>
  <paging-directory>{directory}/data/paging</paging-directory>
  <bindings-directory>{directory}/data/bindings</bindings-directory>
  <journal-directory>{directory}/data/journal</journal-directory>
  <large-messages-directory>{directory}/data/large</large-messages-directory>
  <security-enabled>{secured}</security-enabled>
  <jmx-management-enabled>false</jmx-management-enabled>
  <max-disk-usage>{max_disk_usage}</max-disk-usage>
  <acceptors>
   <acceptor name="amqp">tcp://127.0.0.1:{port}?protocols=AMQP;useEpoll=false</acceptor>
   <acceptor name="stomp">tcp://127.0.0.1:{stomp_port}?protocols=STOMP;useEpoll=false</acceptor>
   {acceptors}
  </acceptors>
  {settings}
  <addresses>
   <address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
  </addresses>
  <address-settings>
   <address-setting match="#">
    <dead-letter-address>DLQ</dead-letter-address>
    <expiry-address>Expired</expiry-address>
    <max-delivery-attempts>1000</max-delivery-attempts>
    <default-address-routing-type>ANYCAST</default-address-routing-type>
    <default-queue-routing-type>ANYCAST</default-queue-routing-type>
   </address-setting>
   <address-setting match="multicast.#">
    <default-address-routing-type>MULTICAST</default-address-routing-type>
    <default-queue-routing-type>MULTICAST</default-queue-routing-type>
   </address-setting>
   <address-setting match="limited.#">
    <max-delivery-attempts>2</max-delivery-attempts>
   </address-setting>
   <address-setting match="closed.#">
    <auto-create-addresses>false</auto-create-addresses>
    <auto-create-queues>false</auto-create-queues>
   </address-setting>
   <address-setting match="gated.*.dlq">
    <auto-create-addresses>false</auto-create-addresses>
    <auto-create-queues>false</auto-create-queues>
   </address-setting>
   <address-setting match="full.#">
    <max-size-bytes>10000</max-size-bytes>
    <address-full-policy>FAIL</address-full-policy>
   </address-setting>
   <address-setting match="blocked.#">
    <max-size-bytes>10000</max-size-bytes>
    <address-full-policy>BLOCK</address-full-policy>
   </address-setting>
  </address-settings>
 </core>
</configuration>
"""

_LOGGING = """
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
"""


class ArtemisServer(JavaServer):
    """A server on a directory of its own. ``acceptors`` and ``settings``: more of its configuration; ``arguments`` of
    the virtual machine; ``max_disk_usage`` in percent, by default as much as may be without a warning."""

    title = "Artemis"

    def __init__(
        self,
        directory: Path,
        *,
        acceptors: str = "",
        settings: str = "",
        secured: bool = False,
        max_disk_usage: int = 99,
        arguments: Sequence[str] = (),
    ) -> None:
        super().__init__(directory)
        self.stomp_port = free_port()
        self._arguments = arguments
        self._configuration = directory / "broker.xml"
        self._configuration.write_text(
            _CONFIGURATION.format(
                directory=directory,
                port=self.port,
                stomp_port=self.stomp_port,
                acceptors=acceptors,
                settings=settings,
                secured=str(secured).lower(),
                max_disk_usage=max_disk_usage,
            )
        )
        (directory / "log4j2.properties").write_text(_LOGGING)

    def url(self) -> str:
        """The URL of the broker."""
        return f"artemis://127.0.0.1:{self.port}/"

    def command(self) -> Sequence[str]:
        if not ARTEMIS.exists():
            missing(self.title, "fetch it with: python -m tests.harness.archives artemis")
        memory = ("-Xms64m", "-Xmx384m")
        settings = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        options = archived(ARTEMIS) if self.options is None else self.options
        program = ["-cp", f"{ARTEMIS}/*", "ArtemisMain", str(self._configuration)]
        return [java(), *options, *SMALL, *memory, settings, *self._arguments, *program]

    def answers(self) -> bool:
        """It listens when it has read what is stored."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as client:
                client.settimeout(5)
                client.sendall(b"AMQP\x03\x01\x00\x00")
                return client.recv(4) == b"AMQP"
        except OSError:
            return False


@contextmanager
def artemis_server() -> Iterator[ArtemisServer]:
    """A running server in a directory that goes with it."""
    with tempfile.TemporaryDirectory(prefix="babelgate-artemis-") as directory:
        server = ArtemisServer(Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.kill()
