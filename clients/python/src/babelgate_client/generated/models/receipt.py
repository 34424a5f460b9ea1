from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset







T = TypeVar("T", bound="Receipt")



@_attrs_define
class Receipt:
    """ An accepted message. ``created_at`` in Unix ms.

        Attributes:
            id (str): The `meta.id` of the message.
            trace_id (str): The `trace_id` of the message.
            queue (str): The queue to which it was published.
            broker (str): The configured name of the queue's broker.
            attempts (int): The `attempts` of the published body; 0 for a draft.
            created_at (int): The `meta.created_at` of the message; Unix milliseconds UTC.
     """

    id: str
    trace_id: str
    queue: str
    broker: str
    attempts: int
    created_at: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        id = self.id

        trace_id = self.trace_id

        queue = self.queue

        broker = self.broker

        attempts = self.attempts

        created_at = self.created_at


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "id": id,
            "trace_id": trace_id,
            "queue": queue,
            "broker": broker,
            "attempts": attempts,
            "created_at": created_at,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        id = d.pop("id")

        trace_id = d.pop("trace_id")

        queue = d.pop("queue")

        broker = d.pop("broker")

        attempts = d.pop("attempts")

        created_at = d.pop("created_at")

        receipt = cls(
            id=id,
            trace_id=trace_id,
            queue=queue,
            broker=broker,
            attempts=attempts,
            created_at=created_at,
        )


        receipt.additional_properties = d
        return receipt

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
