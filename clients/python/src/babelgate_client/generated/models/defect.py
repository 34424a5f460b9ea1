from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset






T = TypeVar("T", bound="Defect")



@_attrs_define
class Defect:
    """ One defect of a request, in its body, or in a ``parameter`` or a ``header``.

        Attributes:
            pointer (str): RFC 6901 pointer to the member of the body, or to the one that the parameter or the header stands
                for. Empty for the whole body, and for what no member stands for.
            code (str): Stable code, for programs.
            detail (str): A sentence for people.
            parameter (str | Unset): The parameter of the path or the query. Empty for the whole query.
            header (str | Unset): The header.
     """

    pointer: str
    code: str
    detail: str
    parameter: str | Unset = UNSET
    header: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        pointer = self.pointer

        code = self.code

        detail = self.detail

        parameter = self.parameter

        header = self.header


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "pointer": pointer,
            "code": code,
            "detail": detail,
        })
        if parameter is not UNSET:
            field_dict["parameter"] = parameter
        if header is not UNSET:
            field_dict["header"] = header

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        pointer = d.pop("pointer")

        code = d.pop("code")

        detail = d.pop("detail")

        parameter = d.pop("parameter", UNSET)

        header = d.pop("header", UNSET)

        defect = cls(
            pointer=pointer,
            code=code,
            detail=detail,
            parameter=parameter,
            header=header,
        )


        defect.additional_properties = d
        return defect

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
