from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.capabilities_ack_scope import CapabilitiesAckScope
from ..models.capabilities_ack_scope import check_capabilities_ack_scope
from ..models.capabilities_delivery_count import CapabilitiesDeliveryCount
from ..models.capabilities_delivery_count import check_capabilities_delivery_count
from ..models.capabilities_ordering import CapabilitiesOrdering
from ..models.capabilities_ordering import check_capabilities_ordering
from typing import cast






T = TypeVar("T", bound="Capabilities")



@_attrs_define
class Capabilities:
    """ What the broker of a queue can do.

        Attributes:
            max_delay_seconds (float | None): Maximum delay in seconds, parking included. `0`: no delays; `null`: no bound.
            max_retry_delay_seconds (float | None): Maximum delay of a nack in seconds, parking included. `0`: no delays;
                `null`: no bound.
            max_lease_seconds (float): Maximum lease in seconds.
            ack_scope (CapabilitiesAckScope): Who can settle: `anywhere` any replica; `owner` the replica that delivered.
                The gateway forwards settles.
            ordering (CapabilitiesOrdering): `fifo`: first in, first out; `key`: in order per `ordering_key`; `none`: no
                order.
            native_release (bool): Whether the broker itself can return a message to the queue.
            delivery_count (CapabilitiesDeliveryCount): How the broker counts deliveries: not at all, from 0, from 1, or
                added by the gateway.
            max_body_bytes (int | None): Maximum size of a body in bytes; `null`: no bound but that of the gateway.
            max_batch (int): Maximum number of messages in one call to the broker. The gateway splits larger batches.
            headers (bool): Whether messages can have native headers.
            max_headers (int | None): Maximum number of native headers of a message; `null`: no bound.
            broker_properties (list[str]): The names of the `broker_properties` that a publish may set.
            priorities (bool): Whether a publish may set a `priority`.
     """

    max_delay_seconds: float | None
    max_retry_delay_seconds: float | None
    max_lease_seconds: float
    ack_scope: CapabilitiesAckScope
    ordering: CapabilitiesOrdering
    native_release: bool
    delivery_count: CapabilitiesDeliveryCount
    max_body_bytes: int | None
    max_batch: int
    headers: bool
    max_headers: int | None
    broker_properties: list[str]
    priorities: bool
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        max_delay_seconds: float | None
        max_delay_seconds = self.max_delay_seconds

        max_retry_delay_seconds: float | None
        max_retry_delay_seconds = self.max_retry_delay_seconds

        max_lease_seconds = self.max_lease_seconds

        ack_scope: str = self.ack_scope

        ordering: str = self.ordering

        native_release = self.native_release

        delivery_count: str = self.delivery_count

        max_body_bytes: int | None
        max_body_bytes = self.max_body_bytes

        max_batch = self.max_batch

        headers = self.headers

        max_headers: int | None
        max_headers = self.max_headers

        broker_properties = self.broker_properties



        priorities = self.priorities


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "max_delay_seconds": max_delay_seconds,
            "max_retry_delay_seconds": max_retry_delay_seconds,
            "max_lease_seconds": max_lease_seconds,
            "ack_scope": ack_scope,
            "ordering": ordering,
            "native_release": native_release,
            "delivery_count": delivery_count,
            "max_body_bytes": max_body_bytes,
            "max_batch": max_batch,
            "headers": headers,
            "max_headers": max_headers,
            "broker_properties": broker_properties,
            "priorities": priorities,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        def _parse_max_delay_seconds(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        max_delay_seconds = _parse_max_delay_seconds(d.pop("max_delay_seconds"))


        def _parse_max_retry_delay_seconds(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        max_retry_delay_seconds = _parse_max_retry_delay_seconds(d.pop("max_retry_delay_seconds"))


        max_lease_seconds = d.pop("max_lease_seconds")

        ack_scope = check_capabilities_ack_scope(d.pop("ack_scope"))




        ordering = check_capabilities_ordering(d.pop("ordering"))




        native_release = d.pop("native_release")

        delivery_count = check_capabilities_delivery_count(d.pop("delivery_count"))




        def _parse_max_body_bytes(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        max_body_bytes = _parse_max_body_bytes(d.pop("max_body_bytes"))


        max_batch = d.pop("max_batch")

        headers = d.pop("headers")

        def _parse_max_headers(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        max_headers = _parse_max_headers(d.pop("max_headers"))


        broker_properties = cast(list[str], d.pop("broker_properties"))


        priorities = d.pop("priorities")

        capabilities = cls(
            max_delay_seconds=max_delay_seconds,
            max_retry_delay_seconds=max_retry_delay_seconds,
            max_lease_seconds=max_lease_seconds,
            ack_scope=ack_scope,
            ordering=ordering,
            native_release=native_release,
            delivery_count=delivery_count,
            max_body_bytes=max_body_bytes,
            max_batch=max_batch,
            headers=headers,
            max_headers=max_headers,
            broker_properties=broker_properties,
            priorities=priorities,
        )


        capabilities.additional_properties = d
        return capabilities

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
