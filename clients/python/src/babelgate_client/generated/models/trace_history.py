from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.searched import Searched
  from ..models.traced_message import TracedMessage





T = TypeVar("T", bound="TraceHistory")



@_attrs_define
class TraceHistory:
    """ The messages of a trace, and what happened to them.

        Attributes:
            next_cursor (None | str): Send it as `cursor` to get the next page; `null`: there is none.
            searched (Searched): How far the search went. Earlier events may be known to the data pipeline.
            trace_id (str): The `trace_id` of the messages.
            messages (list[TracedMessage]): The messages with an event on this page, by the time of the first one.
     """

    next_cursor: None | str
    searched: Searched
    trace_id: str
    messages: list[TracedMessage]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.searched import Searched # noqa: PLC0415
        from ..models.traced_message import TracedMessage # noqa: PLC0415
        next_cursor: None | str
        next_cursor = self.next_cursor

        searched = self.searched.to_dict()

        trace_id = self.trace_id

        messages = []
        for messages_item_data in self.messages:
            messages_item = messages_item_data.to_dict()
            messages.append(messages_item)




        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "next_cursor": next_cursor,
            "searched": searched,
            "trace_id": trace_id,
            "messages": messages,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.searched import Searched # noqa: PLC0415
        from ..models.traced_message import TracedMessage # noqa: PLC0415
        d = dict(src_dict)
        def _parse_next_cursor(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        next_cursor = _parse_next_cursor(d.pop("next_cursor"))


        searched = Searched.from_dict(d.pop("searched"))




        trace_id = d.pop("trace_id")

        messages = []
        _messages = d.pop("messages")
        for messages_item_data in (_messages):
            messages_item = TracedMessage.from_dict(messages_item_data)



            messages.append(messages_item)


        trace_history = cls(
            next_cursor=next_cursor,
            searched=searched,
            trace_id=trace_id,
            messages=messages,
        )


        trace_history.additional_properties = d
        return trace_history

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
