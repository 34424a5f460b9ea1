from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.figures import Figures
  from ..models.stats import Stats





T = TypeVar("T", bound="BusyQueue")



@_attrs_define
class BusyQueue:
    """ A queue with its rates, its last hour and its counts.

        Attributes:
            queue (str): The name of the queue in paths.
            broker (str): The configured name of the broker.
            published_per_second (float): Messages published a second, the mean of the last 60 seconds.
            delivered_per_second (float): Messages delivered a second, the mean of the last 60 seconds.
            acked_per_second (float): Messages acked a second, the mean of the last 60 seconds.
            hour (Figures): What happened within some time. `null`: nothing of the kind.
            stats (Stats): Counts of a queue. `null`: the broker does not report this count.
     """

    queue: str
    broker: str
    published_per_second: float
    delivered_per_second: float
    acked_per_second: float
    hour: Figures
    stats: Stats
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.figures import Figures # noqa: PLC0415
        from ..models.stats import Stats # noqa: PLC0415
        queue = self.queue

        broker = self.broker

        published_per_second = self.published_per_second

        delivered_per_second = self.delivered_per_second

        acked_per_second = self.acked_per_second

        hour = self.hour.to_dict()

        stats = self.stats.to_dict()


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "queue": queue,
            "broker": broker,
            "published_per_second": published_per_second,
            "delivered_per_second": delivered_per_second,
            "acked_per_second": acked_per_second,
            "hour": hour,
            "stats": stats,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.figures import Figures # noqa: PLC0415
        from ..models.stats import Stats # noqa: PLC0415
        d = dict(src_dict)
        queue = d.pop("queue")

        broker = d.pop("broker")

        published_per_second = d.pop("published_per_second")

        delivered_per_second = d.pop("delivered_per_second")

        acked_per_second = d.pop("acked_per_second")

        hour = Figures.from_dict(d.pop("hour"))




        stats = Stats.from_dict(d.pop("stats"))




        busy_queue = cls(
            queue=queue,
            broker=broker,
            published_per_second=published_per_second,
            delivered_per_second=delivered_per_second,
            acked_per_second=acked_per_second,
            hour=hour,
            stats=stats,
        )


        busy_queue.additional_properties = d
        return busy_queue

    @property
    def additional_keys(self) -> list[str]:
        return list(self.additional_properties.keys())

    def __getitem__(self, key: str) -> Any:
        return self.additional_properties[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.additional_properties[key] = value

    def __delitem__(self, key: str) -> None:
        del self.additional_properties[key]

    def __contains__(self, key: str) -> bool:
        return key in self.additional_properties
