from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.broker import Broker





T = TypeVar("T", bound="BrokerList")



@_attrs_define
class BrokerList:
    """ Brokers that the caller may manage.

        Attributes:
            brokers (list[Broker]): The brokers, by name.
     """

    brokers: list[Broker]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.broker import Broker # noqa: PLC0415
        brokers = []
        for brokers_item_data in self.brokers:
            brokers_item = brokers_item_data.to_dict()
            brokers.append(brokers_item)




        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "brokers": brokers,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.broker import Broker # noqa: PLC0415
        d = dict(src_dict)
        brokers = []
        _brokers = d.pop("brokers")
        for brokers_item_data in (_brokers):
            brokers_item = Broker.from_dict(brokers_item_data)



            brokers.append(brokers_item)


        broker_list = cls(
            brokers=brokers,
        )


        broker_list.additional_properties = d
        return broker_list

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
