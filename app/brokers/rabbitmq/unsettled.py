"""What arrived on one channel and is not settled yet."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class Unsettled:
    """Delivery tags in the order of their arrival, which is their own."""

    def __init__(self) -> None:
        self._tags: OrderedDict[int, None] = OrderedDict()

    def arrived(self, tag: int) -> None:
        """A message has come."""
        self._tags[tag] = None

    def settle(self, tags: Sequence[int]) -> list[tuple[int, bool]]:
        """What to write to settle ``tags``: tag, and whether it stands for all before it.

        All from the oldest on are one frame, and one command where the queue has replicas. Nothing that arrived is
        unknown here, so a frame for many never settles what somebody else still has.
        """
        wanted = set(tags)
        run = 0
        count = 0
        for tag in self._tags:
            if tag not in wanted:
                break
            run = tag
            count += 1
        for tag in wanted:
            self._tags.pop(tag, None)
        if count < 2:
            return [(tag, False) for tag in tags]
        return [(run, True), *((tag, False) for tag in tags if tag > run)]
