from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast






T = TypeVar("T", bound="ExtendRequest")



@_attrs_define
class ExtendRequest:
    """ Messages whose lease will end ``lease_seconds`` from now (default: the queue's policy).

        Attributes:
            ack_tokens (list[str]): 1 to 1000 ack tokens of this queue.
            lease_seconds (float | None | Unset):
     """

    ack_tokens: list[str]
    lease_seconds: float | None | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        ack_tokens = self.ack_tokens



        lease_seconds: float | None | Unset
        if isinstance(self.lease_seconds, Unset):
            lease_seconds = UNSET
        else:
            lease_seconds = self.lease_seconds


        field_dict: dict[str, Any] = {}

        field_dict.update({
            "ack_tokens": ack_tokens,
        })
        if lease_seconds is not UNSET:
            field_dict["lease_seconds"] = lease_seconds

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        ack_tokens = cast(list[str], d.pop("ack_tokens"))


        def _parse_lease_seconds(data: object) -> float | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(float | None | Unset, data)

        lease_seconds = _parse_lease_seconds(d.pop("lease_seconds", UNSET))


        extend_request = cls(
            ack_tokens=ack_tokens,
            lease_seconds=lease_seconds,
        )

        return extend_request

