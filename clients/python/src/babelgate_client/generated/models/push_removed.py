from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast






T = TypeVar("T", bound="PushRemoved")



@_attrs_define
class PushRemoved:
    """ A push that was removed, and which processes know it.

        Attributes:
            queue (str): The name of the queue in paths.
            told (int): How many other processes have confirmed that they know it.
            silent (list[str]): Peers that gave no answer, by address or socket. They learn it when they answer again.
            removed (bool | Unset): Always `true`. Default: true.
     """

    queue: str
    told: int
    silent: list[str]
    removed: bool | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        queue = self.queue

        told = self.told

        silent = self.silent



        removed = self.removed


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "queue": queue,
            "told": told,
            "silent": silent,
        })
        if removed is not UNSET:
            field_dict["removed"] = removed

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        queue = d.pop("queue")

        told = d.pop("told")

        silent = cast(list[str], d.pop("silent"))


        removed = d.pop("removed", UNSET)

        push_removed = cls(
            queue=queue,
            told=told,
            silent=silent,
            removed=removed,
        )


        push_removed.additional_properties = d
        return push_removed

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
