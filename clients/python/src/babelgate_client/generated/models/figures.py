from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast






T = TypeVar("T", bound="Figures")



@_attrs_define
class Figures:
    """ What happened within some time. `null`: nothing of the kind.

        Attributes:
            published (int): Messages that the broker has durably accepted.
            delivered (int): Messages delivered to consumers.
            acked (int): Leases that ended with an ack.
            nacked (int): Leases that ended with a nack.
            rejected (int): Leases that ended with a reject.
            dead_lettered (int): Messages moved to the dead-letter queue.
            redriven (int): Dead letters sent back, by their original queue.
            lease_expired (int): Leases that expired before a settle.
            broker_errors (int): Calls to the broker that failed.
            dropped (int): Expired messages that were removed, because their route has `expired: drop`.
            publish_p50_seconds (float | None): Median duration of a publish at the broker, in seconds.
            publish_p99_seconds (float | None): The duration in which 99 % of the publishes were confirmed, in seconds.
            delivery_p50_seconds (float | None): Median age of a message at its first delivery, in seconds, from
                `created_at` on, with its delay.
            delivery_p99_seconds (float | None): The age that 99 % of the messages had at most at their first delivery, in
                seconds.
     """

    published: int
    delivered: int
    acked: int
    nacked: int
    rejected: int
    dead_lettered: int
    redriven: int
    lease_expired: int
    broker_errors: int
    dropped: int
    publish_p50_seconds: float | None
    publish_p99_seconds: float | None
    delivery_p50_seconds: float | None
    delivery_p99_seconds: float | None
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        published = self.published

        delivered = self.delivered

        acked = self.acked

        nacked = self.nacked

        rejected = self.rejected

        dead_lettered = self.dead_lettered

        redriven = self.redriven

        lease_expired = self.lease_expired

        broker_errors = self.broker_errors

        dropped = self.dropped

        publish_p50_seconds: float | None
        publish_p50_seconds = self.publish_p50_seconds

        publish_p99_seconds: float | None
        publish_p99_seconds = self.publish_p99_seconds

        delivery_p50_seconds: float | None
        delivery_p50_seconds = self.delivery_p50_seconds

        delivery_p99_seconds: float | None
        delivery_p99_seconds = self.delivery_p99_seconds


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "published": published,
            "delivered": delivered,
            "acked": acked,
            "nacked": nacked,
            "rejected": rejected,
            "dead_lettered": dead_lettered,
            "redriven": redriven,
            "lease_expired": lease_expired,
            "broker_errors": broker_errors,
            "dropped": dropped,
            "publish_p50_seconds": publish_p50_seconds,
            "publish_p99_seconds": publish_p99_seconds,
            "delivery_p50_seconds": delivery_p50_seconds,
            "delivery_p99_seconds": delivery_p99_seconds,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        published = d.pop("published")

        delivered = d.pop("delivered")

        acked = d.pop("acked")

        nacked = d.pop("nacked")

        rejected = d.pop("rejected")

        dead_lettered = d.pop("dead_lettered")

        redriven = d.pop("redriven")

        lease_expired = d.pop("lease_expired")

        broker_errors = d.pop("broker_errors")

        dropped = d.pop("dropped")

        def _parse_publish_p50_seconds(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        publish_p50_seconds = _parse_publish_p50_seconds(d.pop("publish_p50_seconds"))


        def _parse_publish_p99_seconds(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        publish_p99_seconds = _parse_publish_p99_seconds(d.pop("publish_p99_seconds"))


        def _parse_delivery_p50_seconds(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        delivery_p50_seconds = _parse_delivery_p50_seconds(d.pop("delivery_p50_seconds"))


        def _parse_delivery_p99_seconds(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        delivery_p99_seconds = _parse_delivery_p99_seconds(d.pop("delivery_p99_seconds"))


        figures = cls(
            published=published,
            delivered=delivered,
            acked=acked,
            nacked=nacked,
            rejected=rejected,
            dead_lettered=dead_lettered,
            redriven=redriven,
            lease_expired=lease_expired,
            broker_errors=broker_errors,
            dropped=dropped,
            publish_p50_seconds=publish_p50_seconds,
            publish_p99_seconds=publish_p99_seconds,
            delivery_p50_seconds=delivery_p50_seconds,
            delivery_p99_seconds=delivery_p99_seconds,
        )


        figures.additional_properties = d
        return figures

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
