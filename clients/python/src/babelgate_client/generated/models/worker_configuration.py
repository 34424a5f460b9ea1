from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast






T = TypeVar("T", bound="WorkerConfiguration")



@_attrs_define
class WorkerConfiguration:
    """ What a worker of the gateway serves.

        Attributes:
            pid (int): Its process.
            version (int | None): The version of its configuration; `null` if it did not answer, and so are the others.
            digest (None | str): The digest of its configuration.
            loaded_at (int | None): When it was loaded, Unix milliseconds UTC.
     """

    pid: int
    version: int | None
    digest: None | str
    loaded_at: int | None
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        pid = self.pid

        version: int | None
        version = self.version

        digest: None | str
        digest = self.digest

        loaded_at: int | None
        loaded_at = self.loaded_at


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "pid": pid,
            "version": version,
            "digest": digest,
            "loaded_at": loaded_at,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        pid = d.pop("pid")

        def _parse_version(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        version = _parse_version(d.pop("version"))


        def _parse_digest(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        digest = _parse_digest(d.pop("digest"))


        def _parse_loaded_at(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        loaded_at = _parse_loaded_at(d.pop("loaded_at"))


        worker_configuration = cls(
            pid=pid,
            version=version,
            digest=digest,
            loaded_at=loaded_at,
        )


        worker_configuration.additional_properties = d
        return worker_configuration

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
