from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset






T = TypeVar("T", bound="BrokerProperties")



@_attrs_define
class BrokerProperties:
    """ Broker properties of Azure Service Bus, [by Microsoft's
    names](https://learn.microsoft.com/rest/api/servicebus/message-headers-and-properties). A queue takes those in its
    capability `broker_properties`. The envelope sets the others: `job` is the label, `trace_id` the correlation id, and
    `meta.id` the message id.

        Attributes:
            time_to_live (float | Unset): Seconds after which the message expires; may be decimal. Without it: as the queue
                is set up.
            reply_to (str | Unset): Where to send a reply.
            to (str | Unset): A destination, for the consumer.
            reply_to_session_id (str | Unset): The session of a reply.
            partition_key (str | Unset): Messages with the same key are in one partition. Equal to `SessionId` and
                `ordering_key`, if these are given.
            session_id (str | Unset): The session of the message. Equal to `ordering_key`, if that is given.
            scheduled_enqueue_time_utc (str | Unset): When the message becomes available: an HTTP-date, or a time of ISO
                8601 with `Z` or an offset. A time in the past is now. It excludes `delay_seconds` and `deliver_at`.
     """

    time_to_live: float | Unset = UNSET
    reply_to: str | Unset = UNSET
    to: str | Unset = UNSET
    reply_to_session_id: str | Unset = UNSET
    partition_key: str | Unset = UNSET
    session_id: str | Unset = UNSET
    scheduled_enqueue_time_utc: str | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        time_to_live = self.time_to_live

        reply_to = self.reply_to

        to = self.to

        reply_to_session_id = self.reply_to_session_id

        partition_key = self.partition_key

        session_id = self.session_id

        scheduled_enqueue_time_utc = self.scheduled_enqueue_time_utc


        field_dict: dict[str, Any] = {}

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

        broker_properties = cls(
            time_to_live=time_to_live,
            reply_to=reply_to,
            to=to,
            reply_to_session_id=reply_to_session_id,
            partition_key=partition_key,
            session_id=session_id,
            scheduled_enqueue_time_utc=scheduled_enqueue_time_utc,
        )

        return broker_properties

