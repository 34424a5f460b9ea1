from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.event_event import check_event_event
from ..models.event_event import EventEvent
from typing import cast

if TYPE_CHECKING:
  from ..models.event_meta_type_0 import EventMetaType0





T = TypeVar("T", bound="Event")



@_attrs_define
class Event:
    """ One event of one message, as the journal has it. What is unknown is `null`.

        Attributes:
            at (int): When it happened, by the clock of the gateway; Unix milliseconds UTC.
            event (EventEvent): What happened.
            queue (str): The queue in which it happened.
            broker (None | str): The configured name of the broker.
            message_id (None | str): The `meta.id` of the message.
            trace_id (None | str): The `trace_id` of the message.
            job (None | str): The `job` of the message.
            attempts (int | None): Failed deliveries before this event.
            outcome (None | str): How a lease ended (`acked`, `nacked`, `rejected`), why the message was dead-lettered, the
                code of a poison
                message, or `edited` or `forced` for a redriven one that is not the message itself.
            to_queue (None | str): Of a redriven message: its new queue.
            lease_seconds (float | None): Of a delivery: seconds of its lease, without extends.
            bytes_ (int | None): Size of the body in bytes.
            lang (None | str): The `meta.lang` of the message: the language of its producer.
            node (str): The gateway that recorded the event.
            meta (EventMetaType0 | None): Members of the message's `meta` that the record keeps (`journal.meta`), all as
                strings. `null`: none.
     """

    at: int
    event: EventEvent
    queue: str
    broker: None | str
    message_id: None | str
    trace_id: None | str
    job: None | str
    attempts: int | None
    outcome: None | str
    to_queue: None | str
    lease_seconds: float | None
    bytes_: int | None
    lang: None | str
    node: str
    meta: EventMetaType0 | None
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.event_meta_type_0 import EventMetaType0 # noqa: PLC0415
        at = self.at

        event: str = self.event

        queue = self.queue

        broker: None | str
        broker = self.broker

        message_id: None | str
        message_id = self.message_id

        trace_id: None | str
        trace_id = self.trace_id

        job: None | str
        job = self.job

        attempts: int | None
        attempts = self.attempts

        outcome: None | str
        outcome = self.outcome

        to_queue: None | str
        to_queue = self.to_queue

        lease_seconds: float | None
        lease_seconds = self.lease_seconds

        bytes_: int | None
        bytes_ = self.bytes_

        lang: None | str
        lang = self.lang

        node = self.node

        meta: dict[str, Any] | None
        if isinstance(self.meta, EventMetaType0):
            meta = self.meta.to_dict()
        else:
            meta = self.meta


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "at": at,
            "event": event,
            "queue": queue,
            "broker": broker,
            "message_id": message_id,
            "trace_id": trace_id,
            "job": job,
            "attempts": attempts,
            "outcome": outcome,
            "to_queue": to_queue,
            "lease_seconds": lease_seconds,
            "bytes": bytes_,
            "lang": lang,
            "node": node,
            "meta": meta,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.event_meta_type_0 import EventMetaType0 # noqa: PLC0415
        d = dict(src_dict)
        at = d.pop("at")

        event = check_event_event(d.pop("event"))




        queue = d.pop("queue")

        def _parse_broker(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        broker = _parse_broker(d.pop("broker"))


        def _parse_message_id(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        message_id = _parse_message_id(d.pop("message_id"))


        def _parse_trace_id(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        trace_id = _parse_trace_id(d.pop("trace_id"))


        def _parse_job(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        job = _parse_job(d.pop("job"))


        def _parse_attempts(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        attempts = _parse_attempts(d.pop("attempts"))


        def _parse_outcome(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        outcome = _parse_outcome(d.pop("outcome"))


        def _parse_to_queue(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        to_queue = _parse_to_queue(d.pop("to_queue"))


        def _parse_lease_seconds(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        lease_seconds = _parse_lease_seconds(d.pop("lease_seconds"))


        def _parse_bytes_(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        bytes_ = _parse_bytes_(d.pop("bytes"))


        def _parse_lang(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        lang = _parse_lang(d.pop("lang"))


        node = d.pop("node")

        def _parse_meta(data: object) -> EventMetaType0 | None:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                meta_type_0 = EventMetaType0.from_dict(data)



                return meta_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(EventMetaType0 | None, data)

        meta = _parse_meta(d.pop("meta"))


        event = cls(
            at=at,
            event=event,
            queue=queue,
            broker=broker,
            message_id=message_id,
            trace_id=trace_id,
            job=job,
            attempts=attempts,
            outcome=outcome,
            to_queue=to_queue,
            lease_seconds=lease_seconds,
            bytes_=bytes_,
            lang=lang,
            node=node,
            meta=meta,
        )


        event.additional_properties = d
        return event

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
