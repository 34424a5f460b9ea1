from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset






T = TypeVar("T", bound="ReceivedBrokerProperties")



@_attrs_define
class ReceivedBrokerProperties:
    """ The broker properties of a delivery, [by Microsoft's names](https://learn.microsoft.com/rest/api/servicebus/message-
    headers-and-properties); only those that it has. Times are HTTP-dates.

        Attributes:
            time_to_live (float | Unset): Seconds after which the message expires.
            reply_to (str | Unset): Where to send a reply.
            to (str | Unset): A destination, for the consumer.
            reply_to_session_id (str | Unset): The session of a reply.
            partition_key (str | Unset): The key of the message's partition.
            session_id (str | Unset): The session of the message.
            scheduled_enqueue_time_utc (str | Unset): When the message was to become available.
            label (str | Unset): The subject: the `job` of an envelope.
            correlation_id (str | Unset): The `trace_id` of an envelope.
            message_id (str | Unset): The `meta.id` of an envelope.
            content_type (str | Unset): The media type of the body.
            delivery_count (int | Unset): The number of deliveries, with this one.
            enqueued_time_utc (str | Unset): When the message became available.
            enqueued_sequence_number (int | Unset): The number that the message had before it was forwarded.
            sequence_number (int | Unset): The number of the message in its queue.
            locked_until_utc (str | Unset): When the lock ends; `lease_expires_at` takes precedence.
            lock_token (str | Unset): The lock of the delivery. Settle with its ack token.
            dead_letter_source (str | Unset): The queue from which the message was dead-lettered.
            state (str | Unset): `Active`, `Deferred` or `Scheduled`.
     """

    time_to_live: float | Unset = UNSET
    reply_to: str | Unset = UNSET
    to: str | Unset = UNSET
    reply_to_session_id: str | Unset = UNSET
    partition_key: str | Unset = UNSET
    session_id: str | Unset = UNSET
    scheduled_enqueue_time_utc: str | Unset = UNSET
    label: str | Unset = UNSET
    correlation_id: str | Unset = UNSET
    message_id: str | Unset = UNSET
    content_type: str | Unset = UNSET
    delivery_count: int | Unset = UNSET
    enqueued_time_utc: str | Unset = UNSET
    enqueued_sequence_number: int | Unset = UNSET
    sequence_number: int | Unset = UNSET
    locked_until_utc: str | Unset = UNSET
    lock_token: str | Unset = UNSET
    dead_letter_source: str | Unset = UNSET
    state: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        time_to_live = self.time_to_live

        reply_to = self.reply_to

        to = self.to

        reply_to_session_id = self.reply_to_session_id

        partition_key = self.partition_key

        session_id = self.session_id

        scheduled_enqueue_time_utc = self.scheduled_enqueue_time_utc

        label = self.label

        correlation_id = self.correlation_id

        message_id = self.message_id

        content_type = self.content_type

        delivery_count = self.delivery_count

        enqueued_time_utc = self.enqueued_time_utc

        enqueued_sequence_number = self.enqueued_sequence_number

        sequence_number = self.sequence_number

        locked_until_utc = self.locked_until_utc

        lock_token = self.lock_token

        dead_letter_source = self.dead_letter_source

        state = self.state


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
        })
        if time_to_live is not UNSET:
            field_dict["TimeToLive"] = time_to_live
        if reply_to is not UNSET:
            field_dict["ReplyTo"] = reply_to
        if to is not UNSET:
            field_dict["To"] = to
        if reply_to_session_id is not UNSET:
            field_dict["ReplyToSessionId"] = reply_to_session_id
        if partition_key is not UNSET:
            field_dict["PartitionKey"] = partition_key
        if session_id is not UNSET:
            field_dict["SessionId"] = session_id
        if scheduled_enqueue_time_utc is not UNSET:
            field_dict["ScheduledEnqueueTimeUtc"] = scheduled_enqueue_time_utc
        if label is not UNSET:
            field_dict["Label"] = label
        if correlation_id is not UNSET:
            field_dict["CorrelationId"] = correlation_id
        if message_id is not UNSET:
            field_dict["MessageId"] = message_id
        if content_type is not UNSET:
            field_dict["ContentType"] = content_type
        if delivery_count is not UNSET:
            field_dict["DeliveryCount"] = delivery_count
        if enqueued_time_utc is not UNSET:
            field_dict["EnqueuedTimeUtc"] = enqueued_time_utc
        if enqueued_sequence_number is not UNSET:
            field_dict["EnqueuedSequenceNumber"] = enqueued_sequence_number
        if sequence_number is not UNSET:
            field_dict["SequenceNumber"] = sequence_number
        if locked_until_utc is not UNSET:
            field_dict["LockedUntilUtc"] = locked_until_utc
        if lock_token is not UNSET:
            field_dict["LockToken"] = lock_token
        if dead_letter_source is not UNSET:
            field_dict["DeadLetterSource"] = dead_letter_source
        if state is not UNSET:
            field_dict["State"] = state

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        time_to_live = d.pop("TimeToLive", UNSET)

        reply_to = d.pop("ReplyTo", UNSET)

        to = d.pop("To", UNSET)

        reply_to_session_id = d.pop("ReplyToSessionId", UNSET)

        partition_key = d.pop("PartitionKey", UNSET)

        session_id = d.pop("SessionId", UNSET)

        scheduled_enqueue_time_utc = d.pop("ScheduledEnqueueTimeUtc", UNSET)

        label = d.pop("Label", UNSET)

        correlation_id = d.pop("CorrelationId", UNSET)

        message_id = d.pop("MessageId", UNSET)

        content_type = d.pop("ContentType", UNSET)

        delivery_count = d.pop("DeliveryCount", UNSET)

        enqueued_time_utc = d.pop("EnqueuedTimeUtc", UNSET)

        enqueued_sequence_number = d.pop("EnqueuedSequenceNumber", UNSET)

        sequence_number = d.pop("SequenceNumber", UNSET)

        locked_until_utc = d.pop("LockedUntilUtc", UNSET)

        lock_token = d.pop("LockToken", UNSET)

        dead_letter_source = d.pop("DeadLetterSource", UNSET)

        state = d.pop("State", UNSET)

        received_broker_properties = cls(
            time_to_live=time_to_live,
            reply_to=reply_to,
            to=to,
            reply_to_session_id=reply_to_session_id,
            partition_key=partition_key,
            session_id=session_id,
            scheduled_enqueue_time_utc=scheduled_enqueue_time_utc,
            label=label,
            correlation_id=correlation_id,
            message_id=message_id,
            content_type=content_type,
            delivery_count=delivery_count,
            enqueued_time_utc=enqueued_time_utc,
            enqueued_sequence_number=enqueued_sequence_number,
            sequence_number=sequence_number,
            locked_until_utc=locked_until_utc,
            lock_token=lock_token,
            dead_letter_source=dead_letter_source,
            state=state,
        )


        received_broker_properties.additional_properties = d
        return received_broker_properties

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
