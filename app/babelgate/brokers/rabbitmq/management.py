"""A client of RabbitMQ's management API. It is optional: publishing and receiving do not depend on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from babelgate.brokers.rabbitmq.url import ManagementEndpoint
from babelgate.jsontext import is_number
from babelgate.observe.logs import get_logger

TIMEOUT_SECONDS = 2.0

log = get_logger(__name__)

Answer = TypeVar("Answer")

LENGTH_LIMITS = ("max-length", "max-length-bytes")

_UP = frozenset({"running", "flow", "idle"})


class QueueCounts(Struct, frozen=True):
    """A queue in the API, up to 5 s late (https://www.rabbitmq.com/docs/management#statistics-interval)."""

    name: str
    type: str = "classic"
    durable: bool = True
    auto_delete: bool = False
    arguments: Mapping[str, Any] = {}
    effective_policy_definition: Mapping[str, Any] | Sequence[Any] | None = None
    state: str = "running"
    messages_unacknowledged: int | None = None

    @property
    def has_dead_letter_exchange(self) -> bool:
        """Whether its arguments or a policy set a dead-letter exchange."""
        return self._setting("dead-letter-exchange") is not None

    @property
    def overflow(self) -> object:
        """What becomes of messages beyond a length limit."""
        return self._setting("overflow") or "drop-head"

    @property
    def rejects_beyond_limit(self) -> bool:
        """Whether its arguments or a policy set a length limit with which the queue rejects further messages."""
        limited = any(self.number(limit) is not None for limit in LENGTH_LIMITS)
        return self.state in _UP and limited and self.overflow in ("reject-publish", "reject-publish-dlx")

    def number(self, name: str) -> int | None:
        """A limit, without the ``x-`` of its argument: the smaller one of the arguments' and the policies', where a
        negative one is none."""
        found = [int(each) for each in self._given(name) if is_number(each)]
        return (max if min(found, default=0) < 0 else min)(found, default=None)

    def _setting(self, name: str) -> object:
        """A setting that is no limit: the arguments come before the policies. None: neither has it."""
        return next((each for each in self._given(name) if each is not None), None)

    def _given(self, name: str) -> tuple[object, object]:
        """https://www.rabbitmq.com/docs/parameters#combining-policy-definitions"""
        policy = self.effective_policy_definition
        return self.arguments.get(f"x-{name}"), policy.get(name) if isinstance(policy, Mapping) else None


class _QueueName(Struct, frozen=True):
    name: str


class ManagementClient:
    """The API at ``where``, for one virtual host. Connections are pooled; a request takes at most 2 s."""

    def __init__(self, broker: str, where: ManagementEndpoint, vhost: str) -> None:
        self._broker = broker
        # Only a gateway with a management URL needs this client: it takes 4 MiB.
        import httpx

        self._vhost = quote(vhost, safe="")
        self._made = partial(
            httpx.AsyncClient,
            base_url=f"{where.url}/api/",
            auth=(where.username, where.password),
            timeout=TIMEOUT_SECONDS,
            # A proxy in the environment is for external services; a broker is in the same network.
            trust_env=False,
        )
        self._client: httpx.AsyncClient | None = self._made()
        self._warned = False

    async def counts(self, queue: str) -> QueueCounts | None:
        """The counts of ``queue``; None when there is no such queue, or the API does not answer."""
        return await self._get(f"queues/{self._vhost}/{quote(queue, safe='')}", QueueCounts)

    async def queues(self) -> Sequence[str] | None:
        """The names of all queues; None when the API does not answer."""
        # Without statistics, which the API would collect from every queue.
        found = await self._get(f"queues/{self._vhost}?columns=name&disable_stats=true", list[_QueueName])
        return None if found is None else [each.name for each in found]

    async def close(self) -> None:
        """Close the connections; idempotent. A later call connects again."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _get(self, path: str, kind: type[Answer]) -> Answer | None:
        import httpx

        if self._client is None:
            self._client = self._made()
        try:
            response = await self._client.get(path)
            if response.status_code == httpx.codes.NOT_FOUND:
                return None
            response.raise_for_status()
            answer = msgspec.json.decode(response.content, type=kind)
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            if not self._warned:
                # Logged once until the API answers again, because counts are requested often.
                log.warning("management API does not answer", broker=self._broker, error=_describe(error))
            self._warned = True
            return None
        self._warned = False
        return answer


def _describe(error: Exception) -> str:
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return f"status {error.response.status_code}"
    return str(error) or type(error).__name__
