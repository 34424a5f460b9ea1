from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.listed_queue import ListedQueue





T = TypeVar("T", bound="QueueList")



@_attrs_define
class QueueList:
    """ Queues that the caller has any right on.

        Attributes:
            queues (list[ListedQueue]): The queues, by name.
            next_cursor (None | str): The `cursor` of the next page; `null`: there is none.
     """

    queues: list[ListedQueue]
    next_cursor: None | str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.listed_queue import ListedQueue # noqa: PLC0415
        queues = []
        for queues_item_data in self.queues:
            queues_item = queues_item_data.to_dict()
            queues.append(queues_item)



        next_cursor: None | str
        next_cursor = self.next_cursor


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "queues": queues,
            "next_cursor": next_cursor,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.listed_queue import ListedQueue # noqa: PLC0415
        d = dict(src_dict)
        queues = []
        _queues = d.pop("queues")
        for queues_item_data in (_queues):
            queues_item = ListedQueue.from_dict(queues_item_data)



            queues.append(queues_item)


        def _parse_next_cursor(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        next_cursor = _parse_next_cursor(d.pop("next_cursor"))


        queue_list = cls(
            queues=queues,
            next_cursor=next_cursor,
        )


        queue_list.additional_properties = d
        return queue_list

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
