from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.figures import Figures
  from ..models.minute import Minute
  from ..models.processes import Processes





T = TypeVar("T", bound="QueueRates")



@_attrs_define
class QueueRates:
    """ The last hour of one queue, in minutes.

        Attributes:
            queue (str): The name of the queue in paths.
            broker (str): The configured name of the broker.
            complete_since (int): From when on the figures are complete, Unix milliseconds. Earlier ones lack those of
                processes that have ended since, and of queues that were forgotten for the sake of others: 10,000 are
                remembered.
            processes (Processes): The processes of this gateway, its workers, on the host that answers.
            hour (Figures): What happened within some time. `null`: nothing of the kind.
            minutes (list[Minute]): The minutes of the last hour since counting began, oldest first. The last one is not
                over.
     """

    queue: str
    broker: str
    complete_since: int
    processes: Processes
    hour: Figures
    minutes: list[Minute]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.figures import Figures # noqa: PLC0415
        from ..models.minute import Minute # noqa: PLC0415
        from ..models.processes import Processes # noqa: PLC0415
        queue = self.queue

        broker = self.broker

        complete_since = self.complete_since

        processes = self.processes.to_dict()

        hour = self.hour.to_dict()

        minutes = []
        for minutes_item_data in self.minutes:
            minutes_item = minutes_item_data.to_dict()
            minutes.append(minutes_item)




        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "queue": queue,
            "broker": broker,
            "complete_since": complete_since,
            "processes": processes,
            "hour": hour,
            "minutes": minutes,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.figures import Figures # noqa: PLC0415
        from ..models.minute import Minute # noqa: PLC0415
        from ..models.processes import Processes # noqa: PLC0415
        d = dict(src_dict)
        queue = d.pop("queue")

        broker = d.pop("broker")

        complete_since = d.pop("complete_since")

        processes = Processes.from_dict(d.pop("processes"))




        hour = Figures.from_dict(d.pop("hour"))




        minutes = []
        _minutes = d.pop("minutes")
        for minutes_item_data in (_minutes):
            minutes_item = Minute.from_dict(minutes_item_data)



            minutes.append(minutes_item)


        queue_rates = cls(
            queue=queue,
            broker=broker,
            complete_since=complete_since,
            processes=processes,
            hour=hour,
            minutes=minutes,
        )


        queue_rates.additional_properties = d
        return queue_rates

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
