"""What only the management API tells of queues. Optional: nothing that carries messages depends on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec
from msgspec import Struct

from app.brokers.rabbitmq.url import ManagementEndpoint
from app.observe.logs import get_logger

TIMEOUT_SECONDS = 2.0

log = get_logger("babelgate.rabbitmq")

Answer = TypeVar("Answer")

_UP = frozenset({"running", "flow", "idle"})


class QueueCounts(Struct, frozen=True):
    """A queue as the API sees it, up to 5 s late (https://www.rabbitmq.com/docs/management#statistics-interval).

    ``head_message_timestamp``: of the oldest ready message, in Unix seconds, where it has one and the queue is classic.
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
        """Whether its arguments or a policy name one."""
        policy = self.effective_policy_definition
        return "x-dead-letter-exchange" in self.arguments or (
            isinstance(policy, Mapping) and "dead-letter-exchange" in policy
        )

    @property
    def rejects_beyond_limit(self) -> bool:
        """Whether its arguments or a policy give it a length limit, beyond which it rejects what is published."""
        policy = self.effective_policy_definition if isinstance(self.effective_policy_definition, Mapping) else {}
        limits = ("max-length", "max-length-bytes")
        limited = any(f"x-{limit}" in self.arguments or limit in policy for limit in limits)
        overflow = self.arguments.get("x-overflow") or policy.get("overflow")
        return self.state in _UP and limited and overflow in ("reject-publish", "reject-publish-dlx")


class _QueueName(Struct, frozen=True):
    name: str


class ManagementClient:
    """The API at ``where``, for one virtual host. Its connections are pooled; each answer is awaited for 2 s."""

    def __init__(self, broker: str, where: ManagementEndpoint, vhost: str) -> None:
        self._broker = broker
        self._vhost = quote(vhost, safe="")
        self._client = httpx.AsyncClient(
            base_url=f"{where.url}/api/",
            auth=(where.username, where.password),
            timeout=TIMEOUT_SECONDS,
            # A proxy of the environment is for the way out; a broker stands beside.
            trust_env=False,
        )
        self._warned = False

    async def counts(self, queue: str) -> QueueCounts | None:
        """Of one queue; None when there is none, or the API does not tell."""
        return await self._get(f"queues/{self._vhost}/{quote(queue, safe='')}", QueueCounts)

    async def queues(self) -> Sequence[str] | None:
        """The names of all queues; None when the API does not tell."""
        found = await self._get(f"queues/{self._vhost}?columns=name", list[_QueueName])
        return None if found is None else [each.name for each in found]

    async def close(self) -> None:
        """Close its connections; idempotent."""
        await self._client.aclose()

    async def _get(self, path: str, kind: type[Answer]) -> Answer | None:
        try:
            response = await self._client.get(path)
            if response.status_code == httpx.codes.NOT_FOUND:
                return None
            response.raise_for_status()
            answer = msgspec.json.decode(response.content, type=kind)
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            if not self._warned:
                # Once, until it answers again: whoever asks for counts asks often.
                log.warning("management API does not answer", broker=self._broker, error=_said(error))
            self._warned = True
            return None
        self._warned = False
        return answer


def _said(error: Exception) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"status {error.response.status_code}"
    return str(error) or type(error).__name__
