from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset







T = TypeVar("T", bound="Replica")



@_attrs_define
class Replica:
    """ A process that serves: a gateway, or one of its workers.

        Attributes:
            incarnation (str): Identifies the process; random at each start.
            node (str): Its name in logs and journals, mostly that of its host; empty for one of an older version.
            gateway (str): The same for all workers of one gateway; empty for one of an older version.
            pid (int): Its process id on its host; 0 for one of an older version.
            version (str): The version that it runs; empty for one of an older version.
            started_at (int): When it started, Unix milliseconds UTC; 0 for one of an older version.
     """

    incarnation: str
    node: str
    gateway: str
    pid: int
    version: str
    started_at: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        incarnation = self.incarnation

        node = self.node

        gateway = self.gateway

        pid = self.pid

        version = self.version

        started_at = self.started_at


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "incarnation": incarnation,
            "node": node,
            "gateway": gateway,
            "pid": pid,
            "version": version,
            "started_at": started_at,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        incarnation = d.pop("incarnation")

        node = d.pop("node")

        gateway = d.pop("gateway")

        pid = d.pop("pid")

        version = d.pop("version")

        started_at = d.pop("started_at")

        replica = cls(
            incarnation=incarnation,
            node=node,
            gateway=gateway,
            pid=pid,
            version=version,
            started_at=started_at,
        )


        replica.additional_properties = d
        return replica

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
