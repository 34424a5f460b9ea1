"""A client of RabbitMQ's management API. It is optional: publishing and receiving do not depend on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from app.brokers.rabbitmq.url import ManagementEndpoint
from app.observe.logs import get_logger

TIMEOUT_SECONDS = 2.0

log = get_logger("babelgate.rabbitmq")

Answer = TypeVar("Answer")

_UP = frozenset({"running", "flow", "idle"})


class QueueCounts(Struct, frozen=True):
    """A queue in the API, up to 5 s late (https://www.rabbitmq.com/docs/management#statistics-interval).

    ``head_message_timestamp``: Unix seconds of the oldest ready message, where it has one and the queue is classic.
    """

    name: str
    type: str = "classic"
    durable: bool = True
    arguments: Mapping[str, Any] = {}
    effective_policy_definition: Mapping[str, Any] | Sequence[Any] | None = None
    state: str = "running"
    messages_ready: int | None = None
    messages_unacknowledged: int | None = None
    head_message_timestamp: int | None = None

    @property
    def has_dead_letter_exchange(self) -> bool:
        """Whether its arguments or a policy set a dead-letter exchange."""
        policy = self.effective_policy_definition
        return "x-dead-letter-exchange" in self.arguments or (
            isinstance(policy, Mapping) and "dead-letter-exchange" in policy
        )

    @property
    def rejects_beyond_limit(self) -> bool:
        """Whether its arguments or a policy set a length limit with which the queue rejects further messages."""
        policy = self.effective_policy_definition if isinstance(self.effective_policy_definition, Mapping) else {}
        limits = ("max-length", "max-length-bytes")
        limited = any(f"x-{limit}" in self.arguments or limit in policy for limit in limits)
        overflow = self.arguments.get("x-overflow") or policy.get("overflow")
        return self.state in _UP and limited and overflow in ("reject-publish", "reject-publish-dlx")


class _QueueName(Struct, frozen=True):
    name: str


class ManagementClient:
    """The API at ``where``, for one virtual host. Connections are pooled; a request takes at most 2 s."""

    def __init__(self, broker: str, where: ManagementEndpoint, vhost: str) -> None:
        self._broker = broker
        # Only a gateway with a management URL needs this client: it takes 4 MiB.
        import httpx

        self._vhost = quote(vhost, safe="")
        self._client = httpx.AsyncClient(
            base_url=f"{where.url}/api/",
            auth=(where.username, where.password),
            timeout=TIMEOUT_SECONDS,
            # A proxy in the environment is for external services; a broker is in the same network.
            trust_env=False,
        )
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
        """Close the connections; idempotent."""
        await self._client.aclose()

    async def _get(self, path: str, kind: type[Answer]) -> Answer | None:
        import httpx

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
