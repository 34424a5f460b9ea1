from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast

if TYPE_CHECKING:
  from ..models.received_message import ReceivedMessage





T = TypeVar("T", bound="Received")



@_attrs_define
class Received:
    """ Deliveries, oldest first; an empty list when there are none.

        Attributes:
            messages (list[ReceivedMessage]): Deliveries, oldest first.
            paused (bool | Unset): True: the queue is paused, and hands nothing out until it is resumed.
     """

    messages: list[ReceivedMessage]
    paused: bool | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.received_message import ReceivedMessage # noqa: PLC0415
        messages = []
        for messages_item_data in self.messages:
            messages_item = messages_item_data.to_dict()
            messages.append(messages_item)



        paused = self.paused


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "messages": messages,
        })
        if paused is not UNSET:
            field_dict["paused"] = paused

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.received_message import ReceivedMessage # noqa: PLC0415
        d = dict(src_dict)
        messages = []
        _messages = d.pop("messages")
        for messages_item_data in (_messages):
            messages_item = ReceivedMessage.from_dict(messages_item_data)



            messages.append(messages_item)


        paused = d.pop("paused", UNSET)

        received = cls(
            messages=messages,
            paused=paused,
        )


        received.additional_properties = d
        return received

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
