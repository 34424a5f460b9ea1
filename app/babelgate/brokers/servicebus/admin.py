"""Reads the descriptions of queues, which only credentials with the right Manage see."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import QueueProperties

from babelgate.brokers.bounded import within
from babelgate.brokers.errors import translating
from babelgate.brokers.servicebus.client import ServiceBusConnections
from babelgate.brokers.servicebus.errors import translate

_MAX_LISTED = 10_000
_DENIED = (401, 403)

Result = TypeVar("Result")


class EntityCounts(NamedTuple):
    """Messages of a queue as Service Bus counts them: ``active`` ones, which leased ones are too, ``scheduled`` and
    natively ``dead`` ones."""

    active: int
    scheduled: int
    dead: int


class ServiceBusAdmin:
    """The descriptions of the queues of one namespace. An answer is None where it is denied."""

    def __init__(self, connections: ServiceBusConnections) -> None:
        self._connections = connections
        self._client: ServiceBusAdministrationClient | None = None
        self._transport: AioHttpTransport | None = None

    async def counts(self, name: str) -> EntityCounts | None:
        """The counts of the queue ``name``; zeros for one that does not exist."""

        async def read(client: ServiceBusAdministrationClient) -> EntityCounts:
            try:
                found = await client.get_queue_runtime_properties(name)
            except ResourceNotFoundError:
                return EntityCounts(0, 0, 0)
            return EntityCounts(
                found.active_message_count or 0,
                found.scheduled_message_count or 0,
                found.dead_letter_message_count or 0,
            )

        return await self._call(read)

    async def delivery_limit(self, name: str) -> int | None:
        """After how many deliveries the service moves a message of the queue ``name`` away; also None if the queue does
        not exist."""
        found = await self._settings(name)
        return None if found is None else found.max_delivery_count

    async def warnings(self, name: str, kept_seconds: float) -> list[str]:
        """Of settings with which the service keeps messages of the queue ``name`` for less than ``kept_seconds``; empty
        if they are not known, or the queue does not exist."""
        settings = await self._settings(name)
        if settings is None:
            return []
        lives, idles = _seconds(settings.default_message_time_to_live), _seconds(settings.auto_delete_on_idle)
        found = []
        if lives < kept_seconds and not settings.dead_lettering_on_message_expiration:
            seconds = f"{lives:g} s (DefaultMessageTimeToLive)"
            found.append(
                f"The queue {name} drops messages after {seconds}: DeadLetteringOnMessageExpiration keeps them."
            )
        if idles < kept_seconds:
            seconds = f"{idles:g} s (AutoDeleteOnIdle)"
            found.append(f"The queue {name} is deleted with its messages when it was not used for {seconds}.")
        return found

    async def queues(self) -> list[str] | None:
        """The names of the queues of the namespace, at most 10,000."""

        async def read(client: ServiceBusAdministrationClient) -> list[str]:
            names: list[str] = []
            async for each in client.list_queues():
                names.append(each.name)
                if len(names) >= _MAX_LISTED:
                    break
            return names

        return await self._call(read)

    async def close(self) -> None:
        """Disconnect; idempotent."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        if self._transport is not None:
            await self._transport.close()
            self._transport = None

    async def _settings(self, name: str) -> QueueProperties | None:
        """Also None if the queue does not exist."""

        async def read(client: ServiceBusAdministrationClient) -> QueueProperties | None:
            try:
                return await client.get_queue(name)
            except ResourceNotFoundError:
                return None

        return await self._call(read)

    async def _call(self, read: Callable[[ServiceBusAdministrationClient], Awaitable[Result]]) -> Result | None:
        connections = self._connections

        async def call() -> Result:
            return await read(self._made())

        with translating(translate, connections.broker):
            try:
                return await within(connections.timeout_seconds, connections.broker, call())
            except ClientAuthenticationError:
                return None
            except HttpResponseError as error:
                if error.status_code in _DENIED:
                    return None
                raise

    def _made(self) -> ServiceBusAdministrationClient:
        self._connections.check_open()
        if self._client is None:
            settings = self._connections.settings
            authorities = (settings.tls and settings.tls.ca_certs) or True
            how: dict[str, Any] = {"retry_total": 0, "connection_verify": authorities}
            if settings.admin_url is not None:
                how["transport"] = self._transport = _Redirected(settings.admin_url, authorities)
            if settings.connection_string is not None:
                self._client = ServiceBusAdministrationClient.from_connection_string(settings.connection_string, **how)
            else:
                self._connections.namespace()
                self._client = ServiceBusAdministrationClient(settings.host, self._connections.credential, **how)
        return self._client


def _seconds(given: timedelta | str | None) -> float:
    """Infinite without a limit. The library gives a text only for a duration that it does not read."""
    return given.total_seconds() if isinstance(given, timedelta) else math.inf


class _Redirected(AioHttpTransport):  # type: ignore[misc]  # the library has no types for it
    """Sends the requests of the client library to another address: it knows only https://NAMESPACE."""

    def __init__(self, url: str, authorities: str | bool) -> None:
        super().__init__(connection_verify=authorities)
        self._to = urlsplit(url)

    async def send(self, request: Any, **options: Any) -> Any:
        parts = urlsplit(request.url)
        path = self._to.path.rstrip("/") + parts.path
        request.url = parts._replace(scheme=self._to.scheme, netloc=self._to.netloc, path=path).geturl()
        return await super().send(request, **options)
