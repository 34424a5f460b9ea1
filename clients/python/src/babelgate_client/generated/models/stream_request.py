from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset






T = TypeVar("T", bound="StreamRequest")



@_attrs_define
class StreamRequest:
    """ The parameters of a stream. ``lease_seconds`` defaults to the queue's policy.

        Attributes:
            max_in_flight (int | Unset): Maximum number of messages of this stream that are delivered and not settled: 1 to
                1000. Default: 10.
            lease_seconds (float | Unset): Seconds from now until the lease ends; may be decimal; at most the
                `max_lease_seconds` of the broker. Without it: the `lease_seconds` of the queue's policy.
            auto_extend (bool | Unset): Whether the gateway prolongs the leases of this stream while it is open, up to an
                hour after the delivery and at most to the `max_lease_seconds` of the broker. Default: true.
     """

    max_in_flight: int | Unset = UNSET
    lease_seconds: float | Unset = UNSET
    auto_extend: bool | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        max_in_flight = self.max_in_flight

        lease_seconds = self.lease_seconds

        auto_extend = self.auto_extend


        field_dict: dict[str, Any] = {}

        field_dict.update({
        })
        if max_in_flight is not UNSET:
            field_dict["max_in_flight"] = max_in_flight
        if lease_seconds is not UNSET:
            field_dict["lease_seconds"] = lease_seconds
        if auto_extend is not UNSET:
            field_dict["auto_extend"] = auto_extend

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        max_in_flight = d.pop("max_in_flight", UNSET)

        lease_seconds = d.pop("lease_seconds", UNSET)

        auto_extend = d.pop("auto_extend", UNSET)

        stream_request = cls(
            max_in_flight=max_in_flight,
            lease_seconds=lease_seconds,
            auto_extend=auto_extend,
        )

        return stream_request

