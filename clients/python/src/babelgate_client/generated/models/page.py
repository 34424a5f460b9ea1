from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast






T = TypeVar("T", bound="Page")



@_attrs_define
class Page:
    """ The bounds of a token that is part of a web page.

        Attributes:
            origins (list[str]): The origins of the pages.
            per_minute (int): Messages a minute that each process accepts with it.
            max_message_bytes (int): Size of one message as it is sent, in bytes.
     """

    origins: list[str]
    per_minute: int
    max_message_bytes: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        origins = self.origins



        per_minute = self.per_minute

        max_message_bytes = self.max_message_bytes


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "origins": origins,
            "per_minute": per_minute,
            "max_message_bytes": max_message_bytes,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        origins = cast(list[str], d.pop("origins"))


        per_minute = d.pop("per_minute")

        max_message_bytes = d.pop("max_message_bytes")

        page = cls(
            origins=origins,
            per_minute=per_minute,
            max_message_bytes=max_message_bytes,
        )


        page.additional_properties = d
        return page

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
