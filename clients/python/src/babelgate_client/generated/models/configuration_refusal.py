from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.configuration_fault import ConfigurationFault





T = TypeVar("T", bound="ConfigurationRefusal")



@_attrs_define
class ConfigurationRefusal:
    """ An attempt to load the configuration that was refused as a whole.

        Attributes:
            at (int): When it was refused, Unix milliseconds UTC.
            cause (str): What asked for it: `http`, `SIGHUP`, or `file` for a file that is watched.
            faults (list[ConfigurationFault]): All that was found.
     """

    at: int
    cause: str
    faults: list[ConfigurationFault]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.configuration_fault import ConfigurationFault # noqa: PLC0415
        at = self.at

        cause = self.cause

        faults = []
        for faults_item_data in self.faults:
            faults_item = faults_item_data.to_dict()
            faults.append(faults_item)




        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "at": at,
            "cause": cause,
            "faults": faults,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.configuration_fault import ConfigurationFault # noqa: PLC0415
        d = dict(src_dict)
        at = d.pop("at")

        cause = d.pop("cause")

        faults = []
        _faults = d.pop("faults")
        for faults_item_data in (_faults):
            faults_item = ConfigurationFault.from_dict(faults_item_data)



            faults.append(faults_item)


        configuration_refusal = cls(
            at=at,
            cause=cause,
            faults=faults,
        )


        configuration_refusal.additional_properties = d
        return configuration_refusal

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
