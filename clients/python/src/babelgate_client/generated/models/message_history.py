from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.message_history_status import check_message_history_status
from ..models.message_history_status import MessageHistoryStatus
from typing import cast

if TYPE_CHECKING:
  from ..models.event import Event
  from ..models.searched import Searched





T = TypeVar("T", bound="MessageHistory")



@_attrs_define
class MessageHistory:
    """ A message, and what happened to it.

        Attributes:
            job (None | str): The `job` of the message.
            status (MessageHistoryStatus): Where the message is after these events. `accepted`, `redriven`: in its queue,
                not delivered since. `delivered`:
                with a consumer, or its lease has expired since. `waiting`: in its queue again, after a nack or an expired
                lease.
                `acked`: done. `dead_lettered`: in the dead letters of its queue. `dropped`: removed, because it had expired.
            detail (str): The status in a sentence for people.
            queue (None | str): The queue of the status.
            broker (None | str): The broker of that queue. `null`: it was redriven to another queue, and nothing has
                happened there yet.
            events (list[Event]): Events, oldest first.
            next_cursor (None | str): Send it as `cursor` to get the next page; `null`: there is none.
            searched (Searched): How far the search went. Earlier events may be known to the data pipeline.
            message_id (str): The `meta.id` of the message.
            trace_id (None | str): The `trace_id` of the message.
     """

    job: None | str
    status: MessageHistoryStatus
    detail: str
    queue: None | str
    broker: None | str
    events: list[Event]
    next_cursor: None | str
    searched: Searched
    message_id: str
    trace_id: None | str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.event import Event # noqa: PLC0415
        from ..models.searched import Searched # noqa: PLC0415
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



        next_cursor: None | str
        next_cursor = self.next_cursor

        searched = self.searched.to_dict()

        message_id = self.message_id

        trace_id: None | str
        trace_id = self.trace_id


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "job": job,
            "status": status,
            "detail": detail,
            "queue": queue,
            "broker": broker,
            "events": events,
            "next_cursor": next_cursor,
            "searched": searched,
            "message_id": message_id,
            "trace_id": trace_id,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.event import Event # noqa: PLC0415
        from ..models.searched import Searched # noqa: PLC0415
        d = dict(src_dict)
        def _parse_job(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        job = _parse_job(d.pop("job"))


        status = check_message_history_status(d.pop("status"))




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


        def _parse_next_cursor(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        next_cursor = _parse_next_cursor(d.pop("next_cursor"))


        searched = Searched.from_dict(d.pop("searched"))




        message_id = d.pop("message_id")

        def _parse_trace_id(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        trace_id = _parse_trace_id(d.pop("trace_id"))


        message_history = cls(
            job=job,
            status=status,
            detail=detail,
            queue=queue,
            broker=broker,
            events=events,
            next_cursor=next_cursor,
            searched=searched,
            message_id=message_id,
            trace_id=trace_id,
        )


        message_history.additional_properties = d
        return message_history

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
