from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.replica import Replica





T = TypeVar("T", bound="ReplicaList")



@_attrs_define
class ReplicaList:
    """ The processes that serve, and the peers that do not answer.

        Attributes:
            processes (list[Replica]): The processes, by node and gateway, at most 10 seconds old.
            silent (list[str]): Peers that gave no answer within a second: their addresses, or the names of their sockets.
            own (str): The incarnation of the process that answers.
            has_port (bool): `false`: the process has no private port for peers, so that it finds no other.
     """

    processes: list[Replica]
    silent: list[str]
    own: str
    has_port: bool
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.replica import Replica # noqa: PLC0415
        processes = []
        for processes_item_data in self.processes:
            processes_item = processes_item_data.to_dict()
            processes.append(processes_item)



        silent = self.silent



        own = self.own

        has_port = self.has_port


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "processes": processes,
            "silent": silent,
            "own": own,
            "has_port": has_port,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.replica import Replica # noqa: PLC0415
        d = dict(src_dict)
        processes = []
        _processes = d.pop("processes")
        for processes_item_data in (_processes):
            processes_item = Replica.from_dict(processes_item_data)



            processes.append(processes_item)


        silent = cast(list[str], d.pop("silent"))


        own = d.pop("own")

        has_port = d.pop("has_port")

        replica_list = cls(
            processes=processes,
            silent=silent,
            own=own,
            has_port=has_port,
        )


        replica_list.additional_properties = d
        return replica_list

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
