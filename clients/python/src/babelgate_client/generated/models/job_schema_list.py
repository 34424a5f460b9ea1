from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.job_schema import JobSchema





T = TypeVar("T", bound="JobSchemaList")



@_attrs_define
class JobSchemaList:
    """ The schemas of jobs.

        Attributes:
            schemas (list[JobSchema]): The schemas, by job.
     """

    schemas: list[JobSchema]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.job_schema import JobSchema # noqa: PLC0415
        schemas = []
        for schemas_item_data in self.schemas:
            schemas_item = schemas_item_data.to_dict()
            schemas.append(schemas_item)




        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "schemas": schemas,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.job_schema import JobSchema # noqa: PLC0415
        d = dict(src_dict)
        schemas = []
        _schemas = d.pop("schemas")
        for schemas_item_data in (_schemas):
            schemas_item = JobSchema.from_dict(schemas_item_data)



            schemas.append(schemas_item)


        job_schema_list = cls(
            schemas=schemas,
        )


        job_schema_list.additional_properties = d
        return job_schema_list

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
