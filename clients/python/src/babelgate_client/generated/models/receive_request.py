from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset






T = TypeVar("T", bound="ReceiveRequest")



@_attrs_define
class ReceiveRequest:
    """ The parameters of a receive. ``lease_seconds`` defaults to the queue's policy.

        Attributes:
            max_messages (int | Unset): Maximum number of messages: 1 to 100. Default: 1.
            wait_seconds (float | Unset): Seconds to wait for the first message (long poll): 0 to 30; may be decimal.
                Default: 0.
            lease_seconds (float | Unset): Seconds from now until the lease ends; may be decimal; at most the
                `max_lease_seconds` of the broker. Without it: the `lease_seconds` of the queue's policy.
     """

    max_messages: int | Unset = UNSET
    wait_seconds: float | Unset = UNSET
    lease_seconds: float | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        max_messages = self.max_messages

        wait_seconds = self.wait_seconds

        lease_seconds = self.lease_seconds


        field_dict: dict[str, Any] = {}

        field_dict.update({
        })
        if max_messages is not UNSET:
            field_dict["max_messages"] = max_messages
        if wait_seconds is not UNSET:
            field_dict["wait_seconds"] = wait_seconds
        if lease_seconds is not UNSET:
            field_dict["lease_seconds"] = lease_seconds

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        max_messages = d.pop("max_messages", UNSET)

        wait_seconds = d.pop("wait_seconds", UNSET)

        lease_seconds = d.pop("lease_seconds", UNSET)

        receive_request = cls(
            max_messages=max_messages,
            wait_seconds=wait_seconds,
            lease_seconds=lease_seconds,
        )

        return receive_request

