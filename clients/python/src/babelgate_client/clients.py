"""The two clients: one that blocks, and one for asyncio."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import httpx

from babelgate_client import calls
from babelgate_client.calls import Attempts, Batch, Call
from babelgate_client.consumer import Consumer, Handler
from babelgate_client.dead_letters import AsyncDeadLetters, DeadLetters
from babelgate_client.errors import BabelgateError, ProblemError
from babelgate_client.generated.client import Client as GeneratedClient
from babelgate_client.generated.models.entry_result import EntryResult
from babelgate_client.generated.models.receipt import Receipt
from babelgate_client.generated.models.settle_outcome import SettleOutcome
from babelgate_client.messages import LANG, Delivery, Message

LOCAL_URL = "http://127.0.0.1:8080"


class _Settings:
    """What both clients are made with.

    ``url`` and ``token``: default to BABELGATE_URL and BABELGATE_TOKEN. ``timeout_seconds``: for one answer, beyond the
    time that a receive may wait. ``retry_seconds``: for how long a failed call is repeated; 0: never. Raises ValueError
    for a URL or a token that cannot be one.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_seconds: float = 30,
        retry_seconds: float = 60,
    ) -> None:
        self.url = calls.gateway_url(url or os.environ.get("BABELGATE_URL") or LOCAL_URL)
        self.timeout_seconds = timeout_seconds
        self.retry_seconds = retry_seconds
        token = token or os.environ.get("BABELGATE_TOKEN")
        self._headers = {"User-Agent": calls.USER_AGENT}
        if token:
            self._headers["Authorization"] = calls.bearer(token)
        self._without_keys: set[str] = set()

    @property
    def api(self) -> GeneratedClient:
        """The generated client of the whole API, for what this class does not offer. It repeats nothing."""
        return GeneratedClient(base_url=self.url, headers=self._headers, timeout=httpx.Timeout(self.timeout_seconds))

    def _key(self, queue: str, message: Message) -> str | None:
        return message.idempotency_key or (None if queue in self._without_keys else calls.new_key())

    def _goes_on_without_key(self, queue: str, message: Message, error: ProblemError) -> bool:
        """Whether to publish without a key. A queue without a store of keys refuses the one that the client made."""
        if error.code != calls.NEEDS_NO_KEY or message.idempotency_key is not None:
            return False
        self._without_keys.add(queue)
        return True


class Client(_Settings):
    """A client that blocks. It may be used by several threads. Methods raise ProblemError and UnreachableError."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._http = httpx.Client(base_url=self.url + "/", headers=self._headers)

    __init__.__doc__ = _Settings.__doc__

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def publish(
        self,
        queue: str,
        job: str,
        data: Mapping[str, Any],
        *,
        trace_id: str | None = None,
        delay_seconds: float | None = None,
        ordering_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        broker_properties: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        lang: str = LANG,
        ext: Mapping[str, Any] | None = None,
        deliver_at: int | None = None,
        ttl_seconds: float | None = None,
        priority: int | None = None,
    ) -> Receipt:
        """Publish one message; returns when the broker has stored it.

        A failed call is repeated with the same idempotency key, so the message is written once. On a queue that keeps
        no keys, it is repeated only if nothing was written.
        """
        message = Message(
            job,
            data,
            trace_id=trace_id,
            delay_seconds=delay_seconds,
            ordering_key=ordering_key,
            headers=headers,
            broker_properties=broker_properties,
            idempotency_key=idempotency_key,
            lang=lang,
            ext=ext,
            deliver_at=deliver_at,
            ttl_seconds=ttl_seconds,
            priority=priority,
        )
        key = self._key(queue, message)
        try:
            answer = self._call(calls.publish(queue, message, key, traceparent))
        except ProblemError as error:
            if not self._goes_on_without_key(queue, message, error):
                raise
            answer = self._call(calls.publish(queue, message, None, traceparent))
        return Receipt.from_dict(answer)

    def publish_batch(
        self, queue: str, messages: Sequence[Message], *, traceparent: str | None = None
    ) -> list[EntryResult]:
        """Publish messages in order; one result per message. Only entries that failed are sent again."""
        batch = Batch(queue, messages, queue not in self._without_keys, traceparent)
        attempts = Attempts(calls.Repeat.ALWAYS, self.retry_seconds)
        while True:
            for part, call in batch.calls():
                batch.record(part, self._call(call))
            failure = batch.failure()
            if batch.keys_unsupported:
                self._without_keys.add(queue)
            if failure is None or not self._paused(attempts, failure):
                return batch.results()

    def receive(
        self, queue: str, *, max_messages: int = 1, wait_seconds: float = 0, lease_seconds: float | None = None
    ) -> list[Delivery]:
        """Lease up to 100 messages; an empty list when there are none within ``wait_seconds`` (at most 30)."""
        call = calls.receive(queue, max_messages, wait_seconds, lease_seconds)
        return calls.deliveries(queue, self._call(call))

    def ack(self, *deliveries: Delivery) -> SettleOutcome:
        """Remove messages of one queue. A single delivery whose lease is over raises LeaseLostError."""
        return self._settle("ack", deliveries)

    def nack(
        self,
        *deliveries: Delivery,
        delay_seconds: float | None = None,
        error: str | None = None,
        exception: str | None = None,
        failed: bool = True,
    ) -> SettleOutcome:
        """Deliver messages again. ``failed=False``: they were not attempted, so no attempt is counted."""
        return self._settle("nack", deliveries, **nack_parameters(delay_seconds, error, exception, failed))

    def reject(self, *deliveries: Delivery, error: str | None = None, exception: str | None = None) -> SettleOutcome:
        """Dead-letter messages."""
        return self._settle("reject", deliveries, error=failure(error, exception))

    def extend(self, *deliveries: Delivery, lease_seconds: float) -> SettleOutcome:
        """Prolong leases: they end ``lease_seconds`` from now."""
        return self._settle("extend", deliveries, lease_seconds=lease_seconds)

    def dead_letters(self, queue: str) -> DeadLetters:
        """The dead letters of ``queue``: list, show, redrive, delete and purge them."""
        return DeadLetters(self._call, queue)

    def _settle(self, action: str, deliveries: Sequence[Delivery], **parameters: Any) -> SettleOutcome:
        call = calls.settle(deliveries[0].queue, action, [each.ack_token for each in deliveries], **parameters)
        return SettleOutcome.from_dict(self._call(call))

    def _call(self, call: Call) -> dict[str, Any]:
        attempts = Attempts(call.repeat, self.retry_seconds)
        while True:
            try:
                return self._once(call)
            except BabelgateError as error:
                time.sleep(attempts.pause_after(error))

    def _once(self, call: Call) -> dict[str, Any]:
        try:
            response = self._http.send(calls.request(self._http, call, self.timeout_seconds))
        except httpx.TransportError as error:
            raise calls.unreachable(error) from None
        return calls.answer(response)

    def _paused(self, attempts: Attempts, failure: ProblemError) -> bool:
        try:
            time.sleep(attempts.pause_after(failure))
        except ProblemError:
            return False
        return True


class AsyncClient(_Settings):
    """A client for asyncio. Methods are those of Client, and :meth:`consumer`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        limits = httpx.Limits(max_connections=200, max_keepalive_connections=20)
        self._http = httpx.AsyncClient(base_url=self.url + "/", headers=self._headers, limits=limits)

    __init__.__doc__ = _Settings.__doc__

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def publish(
        self,
        queue: str,
        job: str,
        data: Mapping[str, Any],
        *,
        trace_id: str | None = None,
        delay_seconds: float | None = None,
        ordering_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        broker_properties: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        lang: str = LANG,
        ext: Mapping[str, Any] | None = None,
        deliver_at: int | None = None,
        ttl_seconds: float | None = None,
        priority: int | None = None,
    ) -> Receipt:
        """As :meth:`Client.publish`."""
        message = Message(
            job,
            data,
            trace_id=trace_id,
            delay_seconds=delay_seconds,
            ordering_key=ordering_key,
            headers=headers,
            broker_properties=broker_properties,
            idempotency_key=idempotency_key,
            lang=lang,
            ext=ext,
            deliver_at=deliver_at,
            ttl_seconds=ttl_seconds,
            priority=priority,
        )
        key = self._key(queue, message)
        try:
            answer = await self._call(calls.publish(queue, message, key, traceparent))
        except ProblemError as error:
            if not self._goes_on_without_key(queue, message, error):
                raise
            answer = await self._call(calls.publish(queue, message, None, traceparent))
        return Receipt.from_dict(answer)

    async def publish_batch(
        self, queue: str, messages: Sequence[Message], *, traceparent: str | None = None
    ) -> list[EntryResult]:
        """As :meth:`Client.publish_batch`."""
        batch = Batch(queue, messages, queue not in self._without_keys, traceparent)
        attempts = Attempts(calls.Repeat.ALWAYS, self.retry_seconds)
        while True:
            for part, call in batch.calls():
                batch.record(part, await self._call(call))
            failure = batch.failure()
            if batch.keys_unsupported:
                self._without_keys.add(queue)
            if failure is None or not await self._paused(attempts, failure):
                return batch.results()

    async def receive(
        self, queue: str, *, max_messages: int = 1, wait_seconds: float = 0, lease_seconds: float | None = None
    ) -> list[Delivery]:
        """As :meth:`Client.receive`."""
        call = calls.receive(queue, max_messages, wait_seconds, lease_seconds)
        return calls.deliveries(queue, await self._call(call))

    async def ack(self, *deliveries: Delivery) -> SettleOutcome:
        """As :meth:`Client.ack`."""
        return await self._settle("ack", deliveries)

    async def nack(
        self,
        *deliveries: Delivery,
        delay_seconds: float | None = None,
        error: str | None = None,
        exception: str | None = None,
        failed: bool = True,
    ) -> SettleOutcome:
        """As :meth:`Client.nack`."""
        return await self._settle("nack", deliveries, **nack_parameters(delay_seconds, error, exception, failed))

    async def reject(
        self, *deliveries: Delivery, error: str | None = None, exception: str | None = None
    ) -> SettleOutcome:
        """As :meth:`Client.reject`."""
        return await self._settle("reject", deliveries, error=failure(error, exception))

    async def extend(self, *deliveries: Delivery, lease_seconds: float) -> SettleOutcome:
        """As :meth:`Client.extend`."""
        return await self._settle("extend", deliveries, lease_seconds=lease_seconds)

    def consumer(self, queue: str, handler: Handler, **options: Any) -> Consumer:
        """A consumer of ``queue``; see :class:`Consumer` for its options."""
        return Consumer(self, queue, handler, **options)

    def dead_letters(self, queue: str) -> AsyncDeadLetters:
        """As :meth:`Client.dead_letters`."""
        return AsyncDeadLetters(self._call, queue)

    async def _settle(self, action: str, deliveries: Sequence[Delivery], **parameters: Any) -> SettleOutcome:
        call = calls.settle(deliveries[0].queue, action, [each.ack_token for each in deliveries], **parameters)
        return SettleOutcome.from_dict(await self._call(call))

    async def _call(self, call: Call, retry_seconds: float | None = None) -> dict[str, Any]:
        attempts = Attempts(call.repeat, self.retry_seconds if retry_seconds is None else retry_seconds)
        while True:
            try:
                return await self._once(call)
            except BabelgateError as error:
                await asyncio.sleep(attempts.pause_after(error))

    async def _once(self, call: Call) -> dict[str, Any]:
        try:
            response = await self._http.send(calls.request(self._http, call, self.timeout_seconds))
        except httpx.TransportError as error:
            raise calls.unreachable(error) from None
        return calls.answer(response)

    async def _paused(self, attempts: Attempts, failure: ProblemError) -> bool:
        try:
            await asyncio.sleep(attempts.pause_after(failure))
        except ProblemError:
            return False
        return True


def nack_parameters(
    delay_seconds: float | None, error: str | None, exception: str | None, failed: bool
) -> dict[str, Any]:
    """The members of a nack beside its tokens."""
    if failed:
        return {"delay_seconds": delay_seconds, "error": failure(error, exception)}
    return {"failed": False}


def failure(error: str | None, exception: str | None) -> dict[str, str | None] | None:
    """The member ``error`` of a nack or a reject."""
    return None if error is None and exception is None else {"message": error, "exception": exception}
