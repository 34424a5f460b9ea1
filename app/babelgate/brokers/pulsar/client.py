"""The connections to a Pulsar cluster: which broker serves a topic, and the credentials of each connection."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from weakref import WeakSet

import httpx

from babelgate.brokers.bounded import within
from babelgate.brokers.connect import CONNECT_SECONDS, Closable, ConnectPause, SharedConnect, replaced
from babelgate.brokers.errors import translating
from babelgate.brokers.pulsar.connection import PulsarConnection
from babelgate.brokers.pulsar.errors import NOT_FOUND, PulsarError, translate
from babelgate.brokers.pulsar.url import PulsarSettings
from babelgate.brokers.pulsar.wire import EntryId
from babelgate.errors import BabelgateError, BrokerUnavailable
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.cache import Cache

_REDIRECT, _CONNECT = 0, 1
_MAX_REDIRECTS = 20
_PARTITIONS_SECONDS = 60.0
"""How long the number of a topic's partitions is believed. It can only grow."""

_FRESH_SECONDS = 60.0
"""How long before its end a token of OAuth 2.0 is replaced."""

_TOPICS_BYTES = 4 * 1024 * 1024
_PARTITIONS_BYTES = 4 * 1024 * 1024
_PARTITIONS_ENTRY_BYTES = 384
_ACKED_BYTES = 32 * 1024 * 1024
_ACKED_ENTRY_BYTES = 900
"""Most bytes of an entry: its numbers, its topic, whose name has some 300 characters, and the places in the table."""

PARTITION = "-partition-"
"""Before the number of a partition, in the name of its topic."""


@dataclass(frozen=True, slots=True)
class _Address:
    """Where to connect. ``proxied``: the broker to which the proxy there leads."""

    host: str
    port: int
    proxied: str | None = None


class PulsarClient(Closable):
    """The connections of one binding, one to each broker, opened on demand and reopened after a loss."""

    def __init__(self, broker: str, settings: PulsarSettings, timeout_seconds: float) -> None:
        self.broker = broker
        self.settings = settings
        self.timeout_seconds = timeout_seconds
        self._connects: dict[_Address, SharedConnect[PulsarConnection]] = {}
        self._connections: dict[_Address, PulsarConnection] = {}
        self._owners: Cache[str, PulsarConnection] = Cache(_TOPICS_BYTES)
        self._partitions: Cache[str, tuple[float, int]] = Cache(_PARTITIONS_BYTES, _PARTITIONS_ENTRY_BYTES)
        self.acked_for_others: Cache[tuple[str, EntryId], float] = Cache(_ACKED_BYTES, _ACKED_ENTRY_BYTES)
        """Entries that other processes received and this one acknowledges, by their topics: the loop's time until which
        they may still arrive; infinite before the broker's receipt."""
        self._service = _Address(*settings.hosts[0])
        """The address of the URL that answered last."""
        self._replacing: BackgroundTasks[None] = BackgroundTasks()
        self._made: WeakSet[PulsarConnection] = WeakSet()
        self._token = ""
        self._token_ends = 0.0

    @property
    def server_version(self) -> str | None:
        """Of an open connection, such as ``Pulsar Server4.0.1``; None without one."""
        return next((connection.server for connection in self._connections.values() if connection.server), None)

    async def service(self) -> PulsarConnection:
        """An open connection to an address of the URL, or one to the first that answers. Raises BrokerUnavailable."""
        error: BabelgateError | None = None
        for address in sorted(
            (_Address(*host) for host in self.settings.hosts), key=lambda each: self._open(each) is None
        ):
            try:
                connection = await self._connected(address)
            except BrokerUnavailable as each:
                error = error or each
            else:
                self._service = address
                return connection
        assert error is not None
        raise error

    async def ping(self) -> None:
        """One round trip on the connection of :meth:`service`. Raises ConnectionEnded and BabelgateError."""
        await (await self.service()).ping()

    def mark_suspect(self) -> None:
        """Replace the connection of :meth:`service` in the background if its peer has vanished: it gave no answer."""
        address = self._service
        connection = self._open(address)
        if connection is None or self._replacing:
            return

        def replace(made: PulsarConnection) -> None:
            if self._connections.get(address) is not connection:
                made.close()
                return
            connection.drop("it is silent, and a new connection is answered")
            self._connections[address] = made

        connect = partial(self._dial, address)
        self._replacing.start(replaced(lambda: connection.heard, connect, replace, PulsarConnection.close))

    async def owner(self, topic: str) -> PulsarConnection:
        """A connection to the broker that serves ``topic``, which is no partitioned one. Raises BabelgateError."""
        found = self._owners.get(topic)
        if found is not None and found.is_open:
            return found
        connection = await self.service()
        authoritative = False
        for _ in range(_MAX_REDIRECTS):
            with translating(translate, self.broker):
                answer = await connection.request("lookupTopic", topic=topic, authoritative=authoritative)
            kind = answer.response if answer.HasField("response") else _CONNECT
            url = answer.brokerServiceUrl if self.settings.tls is None else answer.brokerServiceUrlTls
            if not self.settings.single_address:
                connection = await self._connected(self._address(url, answer.proxy_through_service_url))
            if kind == _CONNECT:
                self._owners.keep(topic, connection)
                return connection
            authoritative = answer.authoritative
        raise BrokerUnavailable(self.broker, f"no broker serves the topic after {_MAX_REDIRECTS} redirects")

    def forget(self, topic: str) -> None:
        """Look ``topic`` up again: another broker may serve it by now."""
        self._owners.forget(topic)

    async def partitions(self, topic: str, *, create: bool) -> list[str]:
        """The topics behind ``topic``: its partitions, or itself. None where it does not exist and is not created.

        ``create``: whether the broker may create it, where its settings allow that. Raises BabelgateError.
        """
        now = time.monotonic()
        known = self._partitions.get(topic)
        if known is None or known[0] <= now:
            with translating(translate, self.broker):
                try:
                    connection = await self.service()
                    answer = await connection.request(
                        "partitionMetadata", topic=topic, metadata_auto_creation_enabled=create
                    )
                except PulsarError as error:
                    if error.code in NOT_FOUND and not create:
                        return []
                    raise
            known = now + _PARTITIONS_SECONDS, answer.partitions
            self._partitions.keep(topic, known)
        count = known[1]
        return [f"{topic}{PARTITION}{number}" for number in range(count)] if count else [topic]

    async def topics(self) -> list[str]:
        """The persistent topics of the namespace, each partition by itself. Raises BabelgateError."""
        with translating(translate, self.broker):
            connection = await self.service()
            answer = await connection.request("getTopicsOfNamespace", namespace=self.settings.namespace)
        return list(answer.topics)

    async def close(self) -> None:
        """Disconnect; idempotent. Later calls fail while this is ``closed``."""
        self.closed = True
        await self._replacing.cancel()
        connects, self._connects = list(self._connects.values()), {}
        self._connections.clear()
        self._owners.clear()
        await asyncio.gather(*(connect.cancel(0.5) for connect in connects))
        # An attempt that was cancelled ends in the next turn of the event loop.
        await asyncio.sleep(0)
        for connection in list(self._made):
            connection.close()
        ending = [asyncio.ensure_future(connection.gone()) for connection in self._made]
        if ending:
            _, late = await asyncio.wait(ending, timeout=0.5)
            for each in late:
                each.cancel()

    async def credentials(self) -> tuple[str, bytes]:
        """The method of authentication, and its data. Raises BrokerUnavailable where no token is to be had."""
        settings = self.settings
        if settings.token is not None:
            return "token", settings.token.encode()
        if settings.token_path is not None:
            try:
                return "token", (await asyncio.to_thread(Path(settings.token_path).read_bytes)).strip()
            except OSError as error:
                raise BrokerUnavailable(self.broker, f"token_path: {error.strerror or error}") from None
        if settings.oauth2 is not None:
            if time.monotonic() >= self._token_ends:
                await self._fetch_token()
            return "token", self._token.encode()
        if settings.tls is not None and settings.tls.certfile is not None:
            return "tls", b""
        return "", b""

    async def _fetch_token(self) -> None:
        oauth2 = self.settings.oauth2
        assert oauth2 is not None
        form = {
            "grant_type": "client_credentials",
            "client_id": oauth2.client_id,
            "client_secret": oauth2.client_secret,
        }
        form |= {name: value for name, value in (("audience", oauth2.audience), ("scope", oauth2.scope)) if value}
        try:
            async with httpx.AsyncClient(timeout=CONNECT_SECONDS) as client:
                found = await client.get(f"{oauth2.issuer_url}/.well-known/openid-configuration")
                found.raise_for_status()
                answer = await client.post(found.json()["token_endpoint"], data=form)
                answer.raise_for_status()
            document = answer.json()
            self._token = str(document["access_token"])
            lasts = float(document.get("expires_in", 3600))
        except (httpx.HTTPError, ValueError, OverflowError, KeyError, TypeError) as error:
            # The text of an error may quote a URL, but neither secrets nor tokens. Its first line says it all.
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise BrokerUnavailable(self.broker, f"no token of OAuth 2.0: {reason}".rstrip(". ")) from None
        self._token_ends = time.monotonic() + max(lasts - _FRESH_SECONDS, lasts / 2)

    def _address(self, url: str, through_service: bool) -> _Address:
        if through_service:
            return _Address(self._service.host, self._service.port, urlsplit(url).netloc)
        parts = urlsplit(url)
        if not parts.hostname or not parts.port:
            raise BrokerUnavailable(self.broker, "the broker that serves the topic has no address for such connections")
        return _Address(parts.hostname, parts.port)

    def _open(self, address: _Address) -> PulsarConnection | None:
        connection = self._connections.get(address)
        return connection if connection is not None and connection.is_open else None

    async def _connected(self, address: _Address) -> PulsarConnection:
        self.check_open()
        if (connection := self._open(address)) is not None:
            return connection
        connect = self._connects.get(address)
        if connect is None:
            connect = SharedConnect(self.broker, lambda: self._connect(address), ConnectPause())
            self._connects[address] = connect
        return await connect.connected()

    async def _connect(self, address: _Address) -> PulsarConnection:
        # Not by the callers: all of them may have been cancelled by now.
        connection = self._connections[address] = await self._dial(address)
        return connection

    async def _dial(self, address: _Address) -> PulsarConnection:
        """A new connection. Raises BabelgateError."""
        with translating(translate, self.broker):
            return await within(CONNECT_SECONDS, self.broker, self._opened(address))

    def _make(self) -> PulsarConnection:
        connection = PulsarConnection(self.credentials)
        # Also where the attempt is cancelled: its socket is closed and waited for.
        self._made.add(connection)
        return connection

    async def _opened(self, address: _Address) -> PulsarConnection:
        tls = self.settings.tls
        context = None if tls is None else tls.context()
        _, connection = await asyncio.get_running_loop().create_connection(
            self._make, address.host, address.port, ssl=context
        )
        try:
            await connection.open(address.proxied)
        except BaseException:
            connection.drop("it was not opened")
            raise
        return connection
