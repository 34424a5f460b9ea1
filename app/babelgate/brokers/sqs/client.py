"""Calls Amazon SQS, and finds or creates queues."""

from __future__ import annotations

import asyncio
import binascii
import contextlib
import io
from base64 import b64decode
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import aiobotocore
import msgspec
from aioboto3 import Session
from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioDeferredRefreshableCredentials
from aiobotocore.parsers import AioResponseParserFactory
from aiobotocore.session import get_session
from botocore import xform_name
from botocore.exceptions import BotoCoreError, NoRegionError
from botocore.loaders import create_loader

from babelgate.brokers.bounded import OPEN_SECONDS, PING_SECONDS, within
from babelgate.brokers.connect import CONNECT_SECONDS, SharedConnect
from babelgate.brokers.sqs.errors import MISSING_QUEUE, error_code, translate
from babelgate.brokers.sqs.queue import SqsQueue
from babelgate.brokers.sqs.url import SqsSettings
from babelgate.errors import BrokerRejected, BrokerUnavailable, ConfigError, OutcomeUnknown
from babelgate.runtime import turns
from babelgate.runtime.cache import Cache

_MAX_CONNECTIONS = 10_000
"""More than the queues of a process and its calls in flight: each waited queue occupies a connection."""

_READ_SECONDS = 60
"""Longer than a long poll. Every call has a bound of its own."""

_DEAD_RETENTION_SECONDS = 1_209_600
"""14 days, the longest: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html"""

_BATCHES = ("SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch")
_ENTRIES = "Entries"

_SESSION_NAME = "babelgate"

_URLS_BYTES = 8 * 1024 * 1024
_URL_BYTES = 768
"""Most bytes of a remembered URL, whose host has at most 253 characters, and the places in the table."""

_LARGE_BYTES = 1_048_576
"""``TOO_LARGE_BYTES_BODY`` of aiohttp: it warns of a larger body that it gets as bytes."""

_MAX_SENDS = 16
"""Calls of one queue in flight that send messages. More only wait at the service, where their time is over sooner."""

_models = cache(create_loader)
"""Amazon's models of its services by their place. All clients of a process read them once, which takes two thirds of
the CPU of a connect."""

Answer = Mapping[str, Any]


class SqsClient:
    """One connection pool to the service, made at the first call. No call is ever repeated by the client."""

    def __init__(self, broker: str, settings: SqsSettings, timeout_seconds: float) -> None:
        self.broker = broker
        self.timeout_seconds = timeout_seconds
        self._settings = settings
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._connect: SharedConnect[Any] = SharedConnect(broker, self._make)
        self._urls: Cache[str, str] = Cache(_URLS_BYTES, _URL_BYTES)
        self._sends: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._searches: dict[str, asyncio.Future[str]] = {}

    async def open(self) -> None:
        """Check that the service answers. Raises BrokerUnavailable; ConfigError without a region."""
        await self.ping(min(CONNECT_SECONDS, OPEN_SECONDS))

    async def ping(self, seconds: float = PING_SECONDS) -> None:
        """One round trip within ``seconds``. A service that denies the call answers, too."""
        try:
            await self.call("ListQueues", seconds=seconds, writes=False, MaxResults=1)
        except BrokerRejected:
            return

    async def close(self) -> None:
        """Close all connections."""
        await self._connect.cancel(1)
        self._client = None
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    async def call(
        self, operation: str, *, writes: bool = True, seconds: float | None = None, **parameters: Any
    ) -> Answer:
        """The answer to ``operation``, by Amazon's name, within ``seconds`` (default: the broker's time-out).

        Raises BrokerError. ``writes``: without an answer the outcome is unknown.
        """
        late = OutcomeUnknown if writes else BrokerUnavailable
        bound = self.timeout_seconds if seconds is None else seconds
        return await within(bound, self.broker, self.unbounded(operation, writes=writes, **parameters), late)

    async def unbounded(self, operation: str, *, writes: bool = True, **parameters: Any) -> Answer:
        """Like :meth:`call`, without a bound."""
        client = self._client or await self._connect.connected()
        try:
            answer: Answer = await getattr(client, xform_name(operation))(**parameters)
        except Exception as error:
            if error_code(error) in MISSING_QUEUE and (url := parameters.get("QueueUrl")) is not None:
                self._forget(url)
            raise translate(error, self.broker, written=writes) from error
        return answer

    def sends(self, queue: SqsQueue) -> asyncio.Semaphore:
        """Held by each call that sends messages to ``queue``; shared by all its callers."""
        return self._sends.setdefault(queue.key, asyncio.Semaphore(_MAX_SENDS))

    async def url(self, queue: SqsQueue) -> str:
        """The URL of ``queue``, which is created if it is missing and its route says so.

        Raises BrokerError: BrokerRejected for a missing queue.
        """
        if queue.url is not None:
            return queue.url
        key = queue.key
        if (known := self._urls.get(key)) is not None:
            return known
        search = self._searches.get(key)
        if search is None:
            search = self._searches[key] = asyncio.ensure_future(self._find(queue))
            search.add_done_callback(lambda done: self._found(key, done))
        return await asyncio.shield(search)

    def traced(self, queue: SqsQueue) -> Mapping[str, str | int]:
        """The attributes of a span: the URL of ``queue`` and its host, once the URL is known.

        https://opentelemetry.io/docs/specs/semconv/messaging/sqs/ (release 1.45). A span of the gateway can cover
        several calls, so it has no ``aws.request_id``.
        """
        url = queue.url or self._urls.get(queue.key)
        if url is None:
            return {}
        parts = urlsplit(url)
        traced: dict[str, str | int] = {"aws.sqs.queue.url": url}
        if parts.hostname:
            traced["server.address"] = parts.hostname
        if parts.port:
            traced["server.port"] = parts.port
        return traced

    async def existing_url(self, queue: SqsQueue) -> str | None:
        """The URL of ``queue``; None if it is missing. Creates nothing."""
        return queue.url or await self._look_up(queue)

    def _forget(self, url: str) -> None:
        for key in [key for key in self._urls if self._urls.get(key) == url]:
            self._urls.forget(key)

    def _found(self, key: str, search: asyncio.Future[str]) -> None:
        self._searches.pop(key, None)
        if not search.cancelled() and search.exception() is None:
            self._remember(key, search.result())

    def _remember(self, key: str, url: str) -> str:
        self._urls.keep(key, url)
        return url

    async def _find(self, queue: SqsQueue) -> str:
        if (found := await self._look_up(queue)) is not None:
            return found
        if not queue.create:
            reason = f"the queue {queue.name} does not exist. Create it, or set create: missing for its route"
            raise BrokerRejected(self.broker, reason)
        attributes = dict(queue.attributes)
        if queue.fifo:
            attributes["FifoQueue"] = "true"
            if queue.content_based:
                attributes["ContentBasedDeduplication"] = "true"
        if queue.for_dead_letters:
            attributes["MessageRetentionPeriod"] = str(_DEAD_RETENTION_SECONDS)
        made = await self.call("CreateQueue", QueueName=queue.name, Attributes=attributes)
        return str(made["QueueUrl"])

    async def _look_up(self, queue: SqsQueue) -> str | None:
        key = queue.key
        if (known := self._urls.get(key)) is not None:
            return known
        owner: dict[str, Any] = {} if queue.account is None else {"QueueOwnerAWSAccountId": queue.account}
        try:
            found = await self.call("GetQueueUrl", writes=False, QueueName=queue.name, **owner)
        except BrokerRejected as error:
            if error_code(error.__cause__ or error) in MISSING_QUEUE:
                return None
            raise
        return self._remember(key, str(found["QueueUrl"]))

    async def _make(self) -> Any:
        session = get_session()
        session.register_component("data_loader", _models(session.get_config_variable("data_path")))
        session.register_component("response_parser_factory", _ParserFactory())
        settings = self._settings
        if settings.assume_role_arn is not None:
            role = _Role(settings.assume_role_arn, settings.region)
            session.get_component("credential_provider").providers.insert(0, role)
        config = AioConfig(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            max_pool_connections=_MAX_CONNECTIONS,
            # The entries are made here, and the service checks them again.
            parameter_validation=False,
            # One text: botocore's own is put together again for each call, which takes a twentieth of its time.
            user_agent=f"babelgate aiobotocore/{aiobotocore.__version__}",
        )
        made = Session(botocore_session=session).client(
            "sqs", region_name=settings.region, endpoint_url=settings.endpoint_url, config=config
        )
        try:
            self._client = await self._stack.enter_async_context(made)
        except NoRegionError as error:
            reason = "no region is given, neither here nor in the AWS environment"
            raise ConfigError(key="region", reason=reason) from error
        except BotoCoreError as error:
            raise translate(error, self.broker, written=False) from error
        events = self._client.meta.events
        for operation in _BATCHES:
            events.register(f"before-parameter-build.sqs.{operation}", _take_entries)
            events.register(f"before-call.sqs.{operation}", _write_entries)
        events.register("before-send.sqs", _stream_large_body)
        return self._client


def _take_entries(params: dict[str, Any], context: dict[str, Any], **_: object) -> None:
    """Keep the entries of a batch from botocore, which takes as long for ten of them as for the rest of a call."""
    context[_ENTRIES] = params.pop(_ENTRIES)


def _write_entries(params: dict[str, Any], context: dict[str, Any], **_: object) -> None:
    """Add the entries to the body that botocore has made of the other parameters."""
    others = msgspec.json.decode(params["body"], type=dict[str, msgspec.Raw])
    params["body"] = msgspec.json.encode({**others, _ENTRIES: context[_ENTRIES]})


def _stream_large_body(request: Any, **_: object) -> None:
    """Have aiohttp write a large body in parts, in several turns of the event loop."""
    if len(request.body) > _LARGE_BYTES:
        request.body = io.BytesIO(request.body)


class _ParserFactory(AioResponseParserFactory):  # type: ignore[misc]  # botocore has no types.
    """Parsers that read what succeeded by msgspec, and a large answer in a thread.

    The json module holds the interpreter while it reads, also in a thread: for 54 ms with ten messages of 1 MiB, where
    msgspec takes 16 ms.
    """

    def create_parser(self, protocol_name: str) -> Any:
        return _Parser(super().create_parser(protocol_name))


class _Parser:
    """What botocore uses of ``parser``. One is made for each call, so it is in no cycle of references."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser

    async def parse(self, response: Mapping[str, Any], shape: object) -> Any:
        return await turns.run(self._read, response, shape, size=len(response["body"]))

    def _read(self, response: Mapping[str, Any], shape: object) -> Any:
        if response["status_code"] == 200:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, binascii.Error):
                return _parsed(response)
        return _finish(self._parser.parse(response, shape))


def _parsed(response: Mapping[str, Any]) -> Any:
    """The result as botocore's parser returns it; of all results only received messages have bytes in them.

    Raises DecodeError for anything but a JSON object, such as the empty answer of some calls.
    """
    parsed = msgspec.json.decode(response["body"], type=dict[str, Any])
    for message in parsed.get("Messages") or ():
        for attribute in (message.get("MessageAttributes") or {}).values():
            if (value := attribute.get("BinaryValue")) is not None:
                attribute["BinaryValue"] = b64decode(value)
    parsed["ResponseMetadata"] = {"HTTPStatusCode": 200, "HTTPHeaders": dict(response["headers"])}
    return parsed


def _finish(parsing: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        parsing.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("a parser waits")


class _Role:
    """A provider of credentials: those of a role, assumed with the credentials of the default chain."""

    METHOD = "babelgate-assume-role"
    CANONICAL_NAME = METHOD

    def __init__(self, arn: str, region: str | None) -> None:
        self._arn = arn
        self._region = region

    async def load(self) -> AioDeferredRefreshableCredentials:
        return AioDeferredRefreshableCredentials(self._refresh, self.METHOD)

    async def _refresh(self) -> Mapping[str, str]:
        config = AioConfig(retries={"total_max_attempts": 1, "mode": "standard"}, connect_timeout=CONNECT_SECONDS)
        async with Session().client("sts", region_name=self._region, config=config) as client:
            answer = await client.assume_role(RoleArn=self._arn, RoleSessionName=_SESSION_NAME)
        given = answer["Credentials"]
        return {
            "access_key": given["AccessKeyId"],
            "secret_key": given["SecretAccessKey"],
            "token": given["SessionToken"],
            "expiry_time": given["Expiration"].isoformat(),
        }
