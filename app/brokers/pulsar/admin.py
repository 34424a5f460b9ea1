"""Counts of topics, from the admin interface of the cluster: https://pulsar.apache.org/admin-rest-api/?version=4.0.0"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx

from app.brokers.bounded import within
from app.brokers.pulsar.client import PulsarClient
from app.brokers.pulsar.errors import translate
from app.brokers.pulsar.publish import SUBSCRIPTION
from app.errors import BrokerUnavailable

_ABSENT = 404
_DENIED = (401, 403)


class TopicCounts(NamedTuple):
    """Of the subscription of the SDKs: ``backlog`` has all that is not acknowledged, ``unacked`` what consumers hold,
    ``delayed`` what the broker has found to be delayed. ``oldest_ms``: when the oldest was published, in Unix ms; 0 if
    unknown."""

    backlog: int = 0
    unacked: int = 0
    delayed: int = 0
    oldest_ms: int = 0


class PulsarAdmin:
    """The admin interface at ``admin_url``. Every answer is None where there is none, or it is denied."""

    def __init__(self, client: PulsarClient) -> None:
        self._client = client
        self._http: httpx.AsyncClient | None = None

    async def counts(self, topic: str) -> TopicCounts | None:
        """The counts of ``topic``; zeros for one that does not exist. Raises BrokerUnavailable."""
        if self._client.settings.admin_url is None:
            return None
        client = self._client
        try:
            return await within(client.timeout_seconds, client.broker, self._counts(topic))
        except BrokerUnavailable:
            raise
        except Exception as error:
            raise translate(error, client.broker, written=False) from error

    async def close(self) -> None:
        """Disconnect; idempotent."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def _counts(self, topic: str) -> TopicCounts | None:
        path = "persistent/" + topic.removeprefix("persistent://")
        query = "getEarliestTimeInBacklog=true&subscriptionBacklogSize=false"
        answer = await self._get(f"{path}/stats?{query}")
        if answer.status_code == _ABSENT:
            answer = await self._get(f"{path}/partitioned-stats?perPartition=false&{query}")
        if answer.status_code == _ABSENT:
            return TopicCounts()
        if answer.status_code in _DENIED:
            return None
        if answer.is_error:
            raise BrokerUnavailable(self._client.broker, f"the admin interface answers {answer.status_code}")
        subscriptions: Mapping[str, Mapping[str, Any]] = answer.json().get("subscriptions", {})
        found = subscriptions.get(SUBSCRIPTION, {})
        return TopicCounts(
            found.get("msgBacklog", 0),
            found.get("unackedMessages", 0),
            found.get("msgDelayed", 0),
            max(found.get("earliestMsgPublishTimeInBacklog", 0), 0),
        )

    async def _get(self, path: str) -> httpx.Response:
        settings = self._client.settings
        if self._http is None:
            verify = True if settings.tls is None else settings.tls.context()
            self._http = httpx.AsyncClient(verify=verify, timeout=self._client.timeout_seconds)
        method, secret = await self._client.credentials()
        headers = {"Authorization": f"Bearer {secret.decode()}"} if method == "token" else {}
        return await self._http.get(f"{settings.admin_url}/admin/v2/{path}", headers=headers)
