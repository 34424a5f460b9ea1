from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset






T = TypeVar("T", bound="PushOutcomes")



@_attrs_define
class PushOutcomes:
    """ What became of the posts since the push started in the process that answers.

        Attributes:
            acked (int | Unset): Messages that are done. Default: 0.
            nacked (int | Unset): Failed attempts. Default: 0.
            rejected (int | Unset): Messages that were dead-lettered at once. Default: 0.
            held (int | Unset): Messages that went back, because the target asked for a pause. Default: 0.
            unreachable (int | Unset): Messages that went back, because there was no connection. Default: 0.
     """

    acked: int | Unset = UNSET
    nacked: int | Unset = UNSET
    rejected: int | Unset = UNSET
    held: int | Unset = UNSET
    unreachable: int | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        acked = self.acked

        nacked = self.nacked

        rejected = self.rejected

        held = self.held

        unreachable = self.unreachable


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
        })
        if acked is not UNSET:
            field_dict["acked"] = acked
        if nacked is not UNSET:
            field_dict["nacked"] = nacked
        if rejected is not UNSET:
            field_dict["rejected"] = rejected
        if held is not UNSET:
            field_dict["held"] = held
        if unreachable is not UNSET:
            field_dict["unreachable"] = unreachable

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        acked = d.pop("acked", UNSET)

        nacked = d.pop("nacked", UNSET)

        rejected = d.pop("rejected", UNSET)

        held = d.pop("held", UNSET)

        unreachable = d.pop("unreachable", UNSET)

        push_outcomes = cls(
            acked=acked,
            nacked=nacked,
            rejected=rejected,
            held=held,
            unreachable=unreachable,
        )


        push_outcomes.additional_properties = d
        return push_outcomes

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
