from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.searched_gateway import SearchedGateway





T = TypeVar("T", bound="Searched")



@_attrs_define
class Searched:
    """ How far the search went. Earlier events may be known to the data pipeline.

        Attributes:
            since (int | None): All `gateways` were searched from this time on; Unix milliseconds UTC. `null`: they have no
                event yet.
            gateways (list[SearchedGateway]): The gateways that answered, by name.
            silent (list[str]): Addresses of gateways that gave no answer, or keep no journal. What only they know is
                missing.
     """

    since: int | None
    gateways: list[SearchedGateway]
    silent: list[str]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.searched_gateway import SearchedGateway # noqa: PLC0415
        since: int | None
        since = self.since

        gateways = []
        for gateways_item_data in self.gateways:
            gateways_item = gateways_item_data.to_dict()
            gateways.append(gateways_item)



        silent = self.silent




        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "since": since,
            "gateways": gateways,
            "silent": silent,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.searched_gateway import SearchedGateway # noqa: PLC0415
        d = dict(src_dict)
        def _parse_since(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        since = _parse_since(d.pop("since"))


        gateways = []
        _gateways = d.pop("gateways")
        for gateways_item_data in (_gateways):
            gateways_item = SearchedGateway.from_dict(gateways_item_data)



            gateways.append(gateways_item)


        silent = cast(list[str], d.pop("silent"))


        searched = cls(
            since=since,
            gateways=gateways,
            silent=silent,
        )


        searched.additional_properties = d
        return searched

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
