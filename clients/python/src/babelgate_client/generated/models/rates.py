from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.busy_queue import BusyQueue
  from ..models.circuit import Circuit
  from ..models.concern import Concern
  from ..models.figures import Figures
  from ..models.minute import Minute
  from ..models.processes import Processes





T = TypeVar("T", bound="Rates")



@_attrs_define
class Rates:
    """ The last hour of all queues that the caller has any right on.

        Attributes:
            published_per_second (float): Messages published a second, the mean of the last 60 seconds.
            delivered_per_second (float): Messages delivered a second, the mean of the last 60 seconds.
            acked_per_second (float): Messages acked a second, the mean of the last 60 seconds.
            complete_since (int): From when on the figures are complete, Unix milliseconds. Earlier ones lack those of
                processes that have ended since, and of queues that were forgotten for the sake of others: 10,000 are
                remembered.
            processes (Processes): The processes of this gateway, its workers, on the host that answers.
            hour (Figures): What happened within some time. `null`: nothing of the kind.
            minutes (list[Minute]): The minutes of the last hour since counting began, oldest first. The last one is not
                over.
            queues (list[BusyQueue]): The busiest queues, by messages published and delivered in the last 60 seconds, then
                in the last hour.
            brokers (list[Circuit]): The brokers that the caller may manage, by name.
            attention (list[Concern]): What needs attention, most urgent first: at most 100. Up to 200 queues are looked at:
                the busiest, those with new
                dead letters, and those configured by name.
     """

    published_per_second: float
    delivered_per_second: float
    acked_per_second: float
    complete_since: int
    processes: Processes
    hour: Figures
    minutes: list[Minute]
    queues: list[BusyQueue]
    brokers: list[Circuit]
    attention: list[Concern]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.busy_queue import BusyQueue # noqa: PLC0415
        from ..models.circuit import Circuit # noqa: PLC0415
        from ..models.concern import Concern # noqa: PLC0415
        from ..models.figures import Figures # noqa: PLC0415
        from ..models.minute import Minute # noqa: PLC0415
        from ..models.processes import Processes # noqa: PLC0415
        published_per_second = self.published_per_second

        delivered_per_second = self.delivered_per_second

        acked_per_second = self.acked_per_second

        complete_since = self.complete_since

        processes = self.processes.to_dict()

        hour = self.hour.to_dict()

        minutes = []
        for minutes_item_data in self.minutes:
            minutes_item = minutes_item_data.to_dict()
            minutes.append(minutes_item)



        queues = []
        for queues_item_data in self.queues:
            queues_item = queues_item_data.to_dict()
            queues.append(queues_item)



        brokers = []
        for brokers_item_data in self.brokers:
            brokers_item = brokers_item_data.to_dict()
            brokers.append(brokers_item)



        attention = []
        for attention_item_data in self.attention:
            attention_item = attention_item_data.to_dict()
            attention.append(attention_item)




        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "published_per_second": published_per_second,
            "delivered_per_second": delivered_per_second,
            "acked_per_second": acked_per_second,
            "complete_since": complete_since,
            "processes": processes,
            "hour": hour,
            "minutes": minutes,
            "queues": queues,
            "brokers": brokers,
            "attention": attention,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.busy_queue import BusyQueue # noqa: PLC0415
        from ..models.circuit import Circuit # noqa: PLC0415
        from ..models.concern import Concern # noqa: PLC0415
        from ..models.figures import Figures # noqa: PLC0415
        from ..models.minute import Minute # noqa: PLC0415
        from ..models.processes import Processes # noqa: PLC0415
        d = dict(src_dict)
        published_per_second = d.pop("published_per_second")

        delivered_per_second = d.pop("delivered_per_second")

        acked_per_second = d.pop("acked_per_second")

        complete_since = d.pop("complete_since")

        processes = Processes.from_dict(d.pop("processes"))




        hour = Figures.from_dict(d.pop("hour"))




        minutes = []
        _minutes = d.pop("minutes")
        for minutes_item_data in (_minutes):
            minutes_item = Minute.from_dict(minutes_item_data)



            minutes.append(minutes_item)


        queues = []
        _queues = d.pop("queues")
        for queues_item_data in (_queues):
            queues_item = BusyQueue.from_dict(queues_item_data)



            queues.append(queues_item)


        brokers = []
        _brokers = d.pop("brokers")
        for brokers_item_data in (_brokers):
            brokers_item = Circuit.from_dict(brokers_item_data)



            brokers.append(brokers_item)


        attention = []
        _attention = d.pop("attention")
        for attention_item_data in (_attention):
            attention_item = Concern.from_dict(attention_item_data)



            attention.append(attention_item)


        rates = cls(
            published_per_second=published_per_second,
            delivered_per_second=delivered_per_second,
            acked_per_second=acked_per_second,
            complete_since=complete_since,
            processes=processes,
            hour=hour,
            minutes=minutes,
            queues=queues,
            brokers=brokers,
            attention=attention,
        )


        rates.additional_properties = d
        return rates

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
