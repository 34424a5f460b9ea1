"""A real Pulsar server: one process with the broker, its bookie and its metadata, which keep their data on disk.

tests/harness/archives.py fetches it; tests/brokers/classes.py writes the archive of its classes.
"""

from __future__ import annotations

import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.harness.archives import PULSAR
from tests.harness.ci import missing
from tests.harness.java import SMALL, JavaServer, archived, java
from tests.harness.local import free_port

_SETTINGS = {
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "listeningInterface": "lo",
    "allowLoopback": "true",
    "defaultNumberOfNamespaceBundles": "1",
    "delayedDeliveryTickTimeMillis": "50",
    # Else a message may come earlier than it is due, by a tick.
    "isDelayedDeliveryDeliverAtTimeStrict": "true",
    "dbStorage_writeCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheMaxSizeMb": "16",
    "dbStorage_rocksDB_blockCacheSize": "8388608",
    "managedLedgerCacheSizeMB": "16",
    # An ack survives a kill when the broker has stored it, which it does so many times a second for a subscription.
    "managedLedgerDefaultMarkDeleteRateLimit": "1000",
    # On a busy machine the only bookie is late a few times a minute. It would get no ledger for half an hour.
    "bookkeeperClientHealthCheckEnabled": "false",
    # A topic that nobody uses stays.
    "brokerDeleteInactiveTopicsEnabled": "false",
}

_MEMORY = ("-Xms128m", "-Xmx640m", "-XX:MaxDirectMemorySize=384m")
_OPENED = ("java.base/jdk.internal.loader", "java.base/java.net", "java.base/jdk.internal.platform")
"""Parts of the Java library that the server's own start script opens, too."""


class PulsarServer(JavaServer):
    """A server on a directory of its own. ``web_port``: that of its admin interface, which may ask for a token."""

    title = "Pulsar"

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, token: str | None = None) -> None:
        super().__init__(directory)
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self.web_port = free_port()
        self._bookie_port = free_port()
        self._settings = settings or {}

    def url(self) -> str:
        """The URL of the broker."""
        return f"pulsar://127.0.0.1:{self.port}/?admin_url=http://127.0.0.1:{self.web_port}"

    def command(self) -> Sequence[str]:
        if not PULSAR.exists():
            missing(self.title, "fetch it with: python -m tests.harness.archives pulsar")
        configuration = self.directory / "standalone.conf"
        settings = {
            **_SETTINGS,
            "brokerServicePort": str(self.port),
            "webServicePort": str(self.web_port),
            **self._settings,
        }
        given = (PULSAR / "conf" / "standalone.conf").read_text().splitlines()
        kept = [line for line in given if line.partition("=")[0] not in settings]
        configuration.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in settings.items())]) + "\n")
        log = self.directory / "log4j2.properties"
        log.write_text(
            "rootLogger.level = WARN\nrootLogger.appenderRef.c.ref = C\n"
            "appender.c.type = Console\nappender.c.name = C\n"
        )
        opened = [f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED]
        return [
            *(java(), *SMALL, *(archived(PULSAR) if self.options is None else self.options), *_MEMORY, *opened),
            *("-Dio.netty.tryReflectionSetAccessible=true", f"-Dlog4j2.configurationFile={log}"),
            *("-cp", f"{PULSAR}/lib/*", "org.apache.pulsar.PulsarStandaloneStarter"),
            *("--config", str(configuration), "-nfw", "-nss", "--num-bookies", "1"),
            *("--metadata-dir", str(self.directory / "metadata"), "--bookkeeper-dir", str(self.directory / "bookies")),
            *("--bookkeeper-port", str(self._bookie_port)),
        ]

    def answers(self) -> bool:
        # It is healthy before it has made the namespace of the tests.
        return self.admin("brokers/health") == b"ok" and self.admin("namespaces/public/default") is not None

    def admin(self, path: str, method: str = "GET", body: bytes | None = None) -> bytes | None:
        """The answer of the admin interface; None where it does not answer or refuses."""
        url = f"http://127.0.0.1:{self.web_port}/admin/v2/{path}"
        request = urllib.request.Request(url, body, self._headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return bytes(answer.read())
        except (urllib.error.URLError, OSError):
            return None


@contextmanager
def pulsar_server(settings: Mapping[str, str] | None = None, token: str | None = None) -> Iterator[PulsarServer]:
    """A running server in a directory that goes with it."""
    with tempfile.TemporaryDirectory(prefix="babelgate-pulsar-", ignore_cleanup_errors=True) as directory:
        server = PulsarServer(Path(directory), settings, token)
        try:
            server.start()
            yield server
        finally:
            server.kill()
