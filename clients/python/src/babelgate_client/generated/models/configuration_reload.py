from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast






T = TypeVar("T", bound="ConfigurationReload")



@_attrs_define
class ConfigurationReload:
    """ The configuration that the process serves by now.

        Attributes:
            version (int): Counts the configurations of the gateway from 1, the start.
            digest (str): The same for all processes with the same configuration and token keys.
            loaded_at (int): When it was loaded, Unix milliseconds UTC.
            changed (list[str]): The keys, of at most two levels, that differ from the configuration before.
     """

    version: int
    digest: str
    loaded_at: int
    changed: list[str]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        version = self.version

        digest = self.digest

        loaded_at = self.loaded_at

        changed = self.changed




        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "version": version,
            "digest": digest,
            "loaded_at": loaded_at,
            "changed": changed,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        version = d.pop("version")

        digest = d.pop("digest")

        loaded_at = d.pop("loaded_at")

        changed = cast(list[str], d.pop("changed"))


        configuration_reload = cls(
            version=version,
            digest=digest,
            loaded_at=loaded_at,
            changed=changed,
        )


        configuration_reload.additional_properties = d
        return configuration_reload

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
