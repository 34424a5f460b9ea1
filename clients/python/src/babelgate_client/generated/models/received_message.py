from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast

if TYPE_CHECKING:
  from ..models.received_broker_properties import ReceivedBrokerProperties
  from ..models.received_envelope import ReceivedEnvelope
  from ..models.received_message_headers import ReceivedMessageHeaders





T = TypeVar("T", bound="ReceivedMessage")



@_attrs_define
class ReceivedMessage:
    """ A delivery. ``lease_expires_at``: Unix milliseconds; ``envelope``: the reserved body, byte for byte.

        Attributes:
            ack_token (str): Proves the lease: send it to ack, nack, reject or extend.
            lease_expires_at (int): When the lease ends; Unix milliseconds UTC.
            attempts (int): The number of earlier deliveries that ended without an ack.
            redelivered (bool): Whether the message was delivered before.
            headers (ReceivedMessageHeaders): Native headers, and a `traceparent` in any case.
            envelope (ReceivedEnvelope): The envelope as stored on the queue. This gateway writes all members of `Envelope`;
                another program may omit optional members, or write `urn` instead of `job`.
            broker_properties (ReceivedBrokerProperties | Unset): The broker properties of a delivery, [by Microsoft's
                names](https://learn.microsoft.com/rest/api/servicebus/message-headers-and-properties); only those that it has.
                Times are HTTP-dates.
     """

    ack_token: str
    lease_expires_at: int
    attempts: int
    redelivered: bool
    headers: ReceivedMessageHeaders
    envelope: ReceivedEnvelope
    broker_properties: ReceivedBrokerProperties | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.received_broker_properties import ReceivedBrokerProperties # noqa: PLC0415
        from ..models.received_envelope import ReceivedEnvelope # noqa: PLC0415
        from ..models.received_message_headers import ReceivedMessageHeaders # noqa: PLC0415
        ack_token = self.ack_token

        lease_expires_at = self.lease_expires_at

        attempts = self.attempts

        redelivered = self.redelivered

        headers = self.headers.to_dict()

        envelope = self.envelope.to_dict()

        broker_properties: dict[str, Any] | Unset = UNSET
        if not isinstance(self.broker_properties, Unset):
            broker_properties = self.broker_properties.to_dict()


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "ack_token": ack_token,
            "lease_expires_at": lease_expires_at,
            "attempts": attempts,
            "redelivered": redelivered,
            "headers": headers,
            "envelope": envelope,
        })
        if broker_properties is not UNSET:
            field_dict["broker_properties"] = broker_properties

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.received_broker_properties import ReceivedBrokerProperties # noqa: PLC0415
        from ..models.received_envelope import ReceivedEnvelope # noqa: PLC0415
        from ..models.received_message_headers import ReceivedMessageHeaders # noqa: PLC0415
        d = dict(src_dict)
        ack_token = d.pop("ack_token")

        lease_expires_at = d.pop("lease_expires_at")

        attempts = d.pop("attempts")

        redelivered = d.pop("redelivered")

        headers = ReceivedMessageHeaders.from_dict(d.pop("headers"))




        envelope = ReceivedEnvelope.from_dict(d.pop("envelope"))




        _broker_properties = d.pop("broker_properties", UNSET)
        broker_properties: ReceivedBrokerProperties | Unset
        if isinstance(_broker_properties,  Unset):
            broker_properties = UNSET
        else:
            broker_properties = ReceivedBrokerProperties.from_dict(_broker_properties)




        received_message = cls(
            ack_token=ack_token,
            lease_expires_at=lease_expires_at,
            attempts=attempts,
            redelivered=redelivered,
            headers=headers,
            envelope=envelope,
            broker_properties=broker_properties,
        )


        received_message.additional_properties = d
        return received_message

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
