from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.redrive_job import RedriveJob





T = TypeVar("T", bound="RedriveJobList")



@_attrs_define
class RedriveJobList:
    """ The redrive jobs of a queue.

        Attributes:
            redrives (list[RedriveJob]): Newest first.
     """

    redrives: list[RedriveJob]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.redrive_job import RedriveJob # noqa: PLC0415
        redrives = []
        for redrives_item_data in self.redrives:
            redrives_item = redrives_item_data.to_dict()
            redrives.append(redrives_item)




        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "redrives": redrives,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.redrive_job import RedriveJob # noqa: PLC0415
        d = dict(src_dict)
        redrives = []
        _redrives = d.pop("redrives")
        for redrives_item_data in (_redrives):
            redrives_item = RedriveJob.from_dict(redrives_item_data)



            redrives.append(redrives_item)


        redrive_job_list = cls(
            redrives=redrives,
        )


        redrive_job_list.additional_properties = d
        return redrive_job_list

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
