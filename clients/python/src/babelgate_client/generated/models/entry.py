from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast

if TYPE_CHECKING:
  from ..models.broker_properties import BrokerProperties
  from ..models.entry_headers import EntryHeaders
  from ..models.envelope import Envelope





T = TypeVar("T", bound="Entry")



@_attrs_define
class Entry:
    """ A full envelope, with options of the message, which do not become part of its body.

        Attributes:
            envelope (Envelope): A BabelQueue envelope.
            delay_seconds (float | Unset): Seconds until the message can be received; may be decimal; at most the broker's
                `max_delay_seconds`. Without it: 0. The query parameter of this name, if given too, must be equal.
            ordering_key (str | Unset): Messages with the same key are delivered in their order. A queue without order
                refuses it, unless its route ignores it.
            headers (EntryHeaders | Unset): Native headers of the message, where the broker supports them. They are no part
                of the body.
            idempotency_key (str | Unset): Publishes the message once, like the header `Idempotency-Key` of a single
                publish: 1 to 255 printable ASCII characters.
            broker_properties (BrokerProperties | Unset): Broker properties of Azure Service Bus, [by Microsoft's
                names](https://learn.microsoft.com/rest/api/servicebus/message-headers-and-properties). A queue takes those in
                its capability `broker_properties`. The envelope sets the others: `job` is the label, `trace_id` the correlation
                id, and `meta.id` the message id.
            deliver_at (int | Unset): When the message can be received first, in Unix milliseconds UTC. A time in the past
                is now. It excludes `delay_seconds`, and is as far away as that at most. The query parameter of this name, if
                given too, must be equal.
            ttl_seconds (float | Unset): Seconds from when the message can be received until it expires; may be decimal; at
                most 315360000. Then the next receive dead-letters it. Without it: as the queue's policy says. Refused where
                messages carry no native headers. The query parameter of this name, if given too, must be equal.
            priority (int | Unset): Of the messages that are ready, those with a higher priority are delivered first, and
                those with the same one in their order. Refused where the queue has no `priorities`, and with an `ordering_key`
                that is not ignored. The query parameter of this name, if given too, must be equal.
     """

    envelope: Envelope
    delay_seconds: float | Unset = UNSET
    ordering_key: str | Unset = UNSET
    headers: EntryHeaders | Unset = UNSET
    idempotency_key: str | Unset = UNSET
    broker_properties: BrokerProperties | Unset = UNSET
    deliver_at: int | Unset = UNSET
    ttl_seconds: float | Unset = UNSET
    priority: int | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        from ..models.broker_properties import BrokerProperties # noqa: PLC0415
        from ..models.entry_headers import EntryHeaders # noqa: PLC0415
        from ..models.envelope import Envelope # noqa: PLC0415
        envelope = self.envelope.to_dict()

        delay_seconds = self.delay_seconds

        ordering_key = self.ordering_key

        headers: dict[str, Any] | Unset = UNSET
        if not isinstance(self.headers, Unset):
            headers = self.headers.to_dict()

        idempotency_key = self.idempotency_key

        broker_properties: dict[str, Any] | Unset = UNSET
        if not isinstance(self.broker_properties, Unset):
            broker_properties = self.broker_properties.to_dict()

        deliver_at = self.deliver_at

        ttl_seconds = self.ttl_seconds

        priority = self.priority


        field_dict: dict[str, Any] = {}

        field_dict.update({
            "envelope": envelope,
        })
        if delay_seconds is not UNSET:
            field_dict["delay_seconds"] = delay_seconds
        if ordering_key is not UNSET:
            field_dict["ordering_key"] = ordering_key
        if headers is not UNSET:
            field_dict["headers"] = headers
        if idempotency_key is not UNSET:
            field_dict["idempotency_key"] = idempotency_key
        if broker_properties is not UNSET:
            field_dict["broker_properties"] = broker_properties
        if deliver_at is not UNSET:
            field_dict["deliver_at"] = deliver_at
        if ttl_seconds is not UNSET:
            field_dict["ttl_seconds"] = ttl_seconds
        if priority is not UNSET:
            field_dict["priority"] = priority

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.broker_properties import BrokerProperties # noqa: PLC0415
        from ..models.entry_headers import EntryHeaders # noqa: PLC0415
        from ..models.envelope import Envelope # noqa: PLC0415
        d = dict(src_dict)
        envelope = Envelope.from_dict(d.pop("envelope"))




        delay_seconds = d.pop("delay_seconds", UNSET)

        ordering_key = d.pop("ordering_key", UNSET)

        _headers = d.pop("headers", UNSET)
        headers: EntryHeaders | Unset
        if isinstance(_headers,  Unset):
            headers = UNSET
        else:
            headers = EntryHeaders.from_dict(_headers)




        idempotency_key = d.pop("idempotency_key", UNSET)

        _broker_properties = d.pop("broker_properties", UNSET)
        broker_properties: BrokerProperties | Unset
        if isinstance(_broker_properties,  Unset):
            broker_properties = UNSET
        else:
            broker_properties = BrokerProperties.from_dict(_broker_properties)




        deliver_at = d.pop("deliver_at", UNSET)

        ttl_seconds = d.pop("ttl_seconds", UNSET)

        priority = d.pop("priority", UNSET)

        entry = cls(
            envelope=envelope,
            delay_seconds=delay_seconds,
            ordering_key=ordering_key,
            headers=headers,
            idempotency_key=idempotency_key,
            broker_properties=broker_properties,
            deliver_at=deliver_at,
            ttl_seconds=ttl_seconds,
            priority=priority,
        )

        return entry

