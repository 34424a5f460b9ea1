from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.traced_message_status import check_traced_message_status
from ..models.traced_message_status import TracedMessageStatus
from typing import cast

if TYPE_CHECKING:
  from ..models.event import Event





T = TypeVar("T", bound="TracedMessage")



@_attrs_define
class TracedMessage:
    """ A message of a trace, and what happened to it.

        Attributes:
            job (None | str): The `job` of the message.
            status (TracedMessageStatus): Where the message is after these events. `accepted`, `redriven`: in its queue, not
                delivered since. `delivered`:
                with a consumer, or its lease has expired since. `waiting`: in its queue again, after a nack or an expired
                lease.
                `acked`: done. `dead_lettered`: in the dead letters of its queue. `dropped`: removed, because it had expired.
            detail (str): The status in a sentence for people.
            queue (None | str): The queue of the status.
            broker (None | str): The broker of that queue. `null`: it was redriven to another queue, and nothing has
                happened there yet.
            events (list[Event]): Events, oldest first.
            message_id (None | str): The `meta.id` of the message.
     """

    job: None | str
    status: TracedMessageStatus
    detail: str
    queue: None | str
    broker: None | str
    events: list[Event]
    message_id: None | str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.event import Event # noqa: PLC0415
        job: None | str
        job = self.job

        status: str = self.status

        detail = self.detail

        queue: None | str
        queue = self.queue

        broker: None | str
        broker = self.broker

        events = []
        for events_item_data in self.events:
            events_item = events_item_data.to_dict()
            events.append(events_item)



        message_id: None | str
        message_id = self.message_id


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "job": job,
            "status": status,
            "detail": detail,
            "queue": queue,
            "broker": broker,
            "events": events,
            "message_id": message_id,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.event import Event # noqa: PLC0415
        d = dict(src_dict)
        def _parse_job(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        job = _parse_job(d.pop("job"))


        status = check_traced_message_status(d.pop("status"))




        detail = d.pop("detail")

        def _parse_queue(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        queue = _parse_queue(d.pop("queue"))


        def _parse_broker(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        broker = _parse_broker(d.pop("broker"))


        events = []
        _events = d.pop("events")
        for events_item_data in (_events):
            events_item = Event.from_dict(events_item_data)



            events.append(events_item)


        def _parse_message_id(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        message_id = _parse_message_id(d.pop("message_id"))


        traced_message = cls(
            job=job,
            status=status,
            detail=detail,
            queue=queue,
            broker=broker,
            events=events,
            message_id=message_id,
        )


        traced_message.additional_properties = d
        return traced_message

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
