from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast






T = TypeVar("T", bound="SearchedGateway")



@_attrs_define
class SearchedGateway:
    """ Gateways whose journal was searched.

        Attributes:
            node (str): Their name in events.
            since (int | None): Their journal was searched from this time on; Unix milliseconds UTC. `null`: it has no event
                yet.
     """

    node: str
    since: int | None
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        node = self.node

        since: int | None
        since = self.since


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "node": node,
            "since": since,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        node = d.pop("node")

        def _parse_since(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        since = _parse_since(d.pop("since"))


        searched_gateway = cls(
            node=node,
            since=since,
        )


        searched_gateway.additional_properties = d
        return searched_gateway

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
