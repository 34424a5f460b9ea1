from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast






T = TypeVar("T", bound="AckRequest")



@_attrs_define
class AckRequest:
    """ Messages to remove from the queue.

        Attributes:
            ack_tokens (list[str]): 1 to 1000 ack tokens of this queue.
     """

    ack_tokens: list[str]





    def to_dict(self) -> dict[str, Any]:
        ack_tokens = self.ack_tokens




        field_dict: dict[str, Any] = {}

        field_dict.update({
            "ack_tokens": ack_tokens,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        ack_tokens = cast(list[str], d.pop("ack_tokens"))


        ack_request = cls(
            ack_tokens=ack_tokens,
        )

        return ack_request

