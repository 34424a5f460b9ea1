from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.removal_result import RemovalResult





T = TypeVar("T", bound="Removal")



@_attrs_define
class Removal:
    """ One result per id, in order; a repeated id has one.

        Attributes:
            removed (int): The number of dead letters that were removed.
            failed (int): The number of ids whose dead letter was not removed.
            results (list[RemovalResult]): The result of each id.
     """

    removed: int
    failed: int
    results: list[RemovalResult]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.removal_result import RemovalResult # noqa: PLC0415
        removed = self.removed

        failed = self.failed

        results = []
        for results_item_data in self.results:
            results_item = results_item_data.to_dict()
            results.append(results_item)




        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "removed": removed,
            "failed": failed,
            "results": results,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.removal_result import RemovalResult # noqa: PLC0415
        d = dict(src_dict)
        removed = d.pop("removed")

        failed = d.pop("failed")

        results = []
        _results = d.pop("results")
        for results_item_data in (_results):
            results_item = RemovalResult.from_dict(results_item_data)



            results.append(results_item)


        removal = cls(
            removed=removed,
            failed=failed,
            results=results,
        )


        removal.additional_properties = d
        return removal

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
