"""Asks for the ends of the logs, once for all reserves that have waited."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from babelgate.brokers.bounded import finished
from babelgate.brokers.kafka.admin import KafkaAdmin

_Ends = Mapping[str, Mapping[int, int]]


class LogEnds:
    """The ends of topics, by one question at a time for all that ask at once.

    An empty answer to a reserve takes a question that began during the reserve. A reserve that has waited for a while
    shares the question of another one, so that many idle queues together ask no more often than one.
    """

    def __init__(self, admin: KafkaAdmin, shared_seconds: float) -> None:
        """``shared_seconds``: how long to wait for the answer about several topics."""
        self._admin = admin
        self._shared_seconds = shared_seconds
        self._began = -math.inf
        self._names: frozenset[str] = frozenset()
        self._asking: asyncio.Task[_Ends] | None = None

    async def of(self, name: str, since: float, others: Iterable[str]) -> Mapping[int, int]:
        """The ends of the partitions of the topic ``name``, as the cluster knew them at some time after ``since``, a
        time of the loop. ``others``: topics whose ends may be asked for soon, too.

        Raises BrokerError. A cancelled call leaves the question to those who share it. Where a question about several
        topics fails or is slow, each asks for its own: one partition without a leader is enough for that.
        """
        loop = asyncio.get_running_loop()
        asking = self._asking
        if asking is None or self._began < since or name not in self._names or _has_failed(asking):
            self._began, self._names = loop.time(), frozenset({name, *others})
            asking = self._asking = loop.create_task(self._ask(self._names))
            asking.add_done_callback(_has_failed)
        if len(self._names) == 1 or (await finished(asking, self._shared_seconds) and not _has_failed(asking)):
            found = await asyncio.shield(asking)
        else:
            found = await self._ask({name})
        return found.get(name, {})

    async def _ask(self, names: Collection[str]) -> _Ends:
        found: defaultdict[str, dict[int, int]] = defaultdict(dict)
        positions = await self._admin.positions(*names)
        offsets = await self._admin.offsets(positions, latest=True, again=len(names) == 1)
        for (name, number), offset in offsets.items():
            found[name][number] = offset
        return found


def _has_failed(asking: asyncio.Task[_Ends]) -> bool:
    return asking.done() and (asking.cancelled() or asking.exception() is not None)
