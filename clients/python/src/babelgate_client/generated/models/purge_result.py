from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset







T = TypeVar("T", bound="PurgeResult")



@_attrs_define
class PurgeResult:
    """ The result of a purge.

        Attributes:
            removed (int): The number of messages removed.
            matched (int): The number of messages that were to be removed. In a dry run it is the broker's own count, which
                may lag.
            dry_run (bool): Whether this was a dry run, which changes nothing.
     """

    removed: int
    matched: int
    dry_run: bool
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        removed = self.removed

        matched = self.matched

        dry_run = self.dry_run


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "removed": removed,
            "matched": matched,
            "dry_run": dry_run,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        removed = d.pop("removed")

        matched = d.pop("matched")

        dry_run = d.pop("dry_run")

        purge_result = cls(
            removed=removed,
            matched=matched,
            dry_run=dry_run,
        )


        purge_result.additional_properties = d
        return purge_result

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
