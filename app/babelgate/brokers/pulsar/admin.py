"""Counts and policies of topics, by the admin interface: https://pulsar.apache.org/admin-rest-api/?version=4.0.0"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import httpx

from babelgate.brokers.pulsar.client import PulsarClient
from babelgate.brokers.pulsar.publish import SUBSCRIPTION
from babelgate.errors import BrokerUnavailable

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


class TopicLosses(NamedTuple):
    """After how many seconds a topic drops what is not acknowledged (0: never), beyond which backlog quotas it does,
    and after how many idle seconds a subscription is deleted with its backlog (0: never)."""

    ttl_seconds: int = 0
    evicting_quotas: Sequence[str] = ()
    subscription_seconds: int = 0


class PulsarAdmin:
    """The admin interface at ``admin_url``. Every answer is None where there is none, or it is denied.

    Callers bound the time, and translate errors.
    """

    def __init__(self, client: PulsarClient) -> None:
        self._client = client
        self._http: httpx.AsyncClient | None = None

    async def close(self) -> None:
        """Disconnect; idempotent."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def counts(self, topic: str) -> TopicCounts | None:
        """The counts of ``topic``; zeros for one that does not exist."""
        if self._client.settings.admin_url is None:
            return None
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

    async def losses(self, topic: str) -> TopicLosses | None:
        """What the policies of ``topic``, its namespace and the broker make it lose."""
        if self._client.settings.admin_url is None:
            return None
        name = topic.removeprefix("persistent://")
        namespace = f"namespaces/{name.rpartition('/')[0]}"
        # As they apply: the policy of the topic, else that of its namespace, else the setting of the broker. A missing
        # topic has no policies.
        ttl, quotas, expiration = await asyncio.gather(
            self._policy(f"persistent/{name}/messageTTL?applied=true", f"{namespace}/messageTTL"),
            self._policy(f"persistent/{name}/backlogQuotaMap?applied=true", f"{namespace}/backlogQuotaMap"),
            self._policy(f"{namespace}/subscriptionExpirationTime"),
        )
        evicted = [
            str(kind)
            for kind, quota in (quotas or {}).items()
            if quota.get("policy") == "consumer_backlog_eviction" and _is_limited(quota)
        ]
        return TopicLosses(ttl or 0, evicted, (expiration or 0) * 60)

    async def _policy(self, *paths: str) -> Any:
        """The value of a policy, by the first path that exists; None where there is none, or it is denied."""
        for path in paths:
            answer = await self._get(path)
            if answer.status_code != _ABSENT:
                return answer.json() if answer.is_success and answer.content else None
        return None

    async def _get(self, path: str) -> httpx.Response:
        settings = self._client.settings
        self._client.check_open()
        if self._http is None:
            verify = True if settings.tls is None else settings.tls.context()
            self._http = httpx.AsyncClient(verify=verify, timeout=self._client.timeout_seconds)
        method, secret = await self._client.credentials()
        headers = {"Authorization": f"Bearer {secret.decode()}"} if method == "token" else {}
        return await self._http.get(f"{settings.admin_url}/admin/v2/{path}", headers=headers)


def _is_limited(quota: Mapping[str, Any]) -> bool:
    """A quota without a limit is the broker's default."""
    return any(quota.get(limit, -1) > 0 for limit in ("limit", "limitSize", "limitTime"))
