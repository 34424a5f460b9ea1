from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast






T = TypeVar("T", bound="PageRequest")



@_attrs_define
class PageRequest:
    """ The bounds of a token that is part of a web page, where anyone can read it.

        Attributes:
            origins (list[str]): The origins of the pages, such as `https://shop.example`; `cors` of the configuration must
                allow each, or browsers do not let the page use the token.
            per_minute (int | Unset): Messages a minute that each process accepts with this token. After a pause as many may
                come at once. Default: 60.
            max_message_bytes (int | Unset): Size of one message as it is sent, in bytes. Default: 16384.
     """

    origins: list[str]
    per_minute: int | Unset = UNSET
    max_message_bytes: int | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        origins = self.origins



        per_minute = self.per_minute

        max_message_bytes = self.max_message_bytes


        field_dict: dict[str, Any] = {}

        field_dict.update({
            "origins": origins,
        })
        if per_minute is not UNSET:
            field_dict["per_minute"] = per_minute
        if max_message_bytes is not UNSET:
            field_dict["max_message_bytes"] = max_message_bytes

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        origins = cast(list[str], d.pop("origins"))


        per_minute = d.pop("per_minute", UNSET)

        max_message_bytes = d.pop("max_message_bytes", UNSET)

        page_request = cls(
            origins=origins,
            per_minute=per_minute,
            max_message_bytes=max_message_bytes,
        )

        return page_request

