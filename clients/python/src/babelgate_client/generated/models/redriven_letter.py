from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast






T = TypeVar("T", bound="RedrivenLetter")



@_attrs_define
class RedrivenLetter:
    """ A dead letter that was sent back.

        Attributes:
            letter_id (str): The id of the dead letter in its queue.
            id (None | str): The `meta.id` of the message; `null`: forced bytes have none.
            to_queue (str): The queue to which the message was sent.
            edited (bool): Whether the message was edited.
            forced (bool): Whether its bytes were sent unchanged.
            removed (bool): `false`: another call has removed the dead letter meanwhile.
     """

    letter_id: str
    id: None | str
    to_queue: str
    edited: bool
    forced: bool
    removed: bool
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        letter_id = self.letter_id

        id: None | str
        id = self.id

        to_queue = self.to_queue

        edited = self.edited

        forced = self.forced

        removed = self.removed


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "letter_id": letter_id,
            "id": id,
            "to_queue": to_queue,
            "edited": edited,
            "forced": forced,
            "removed": removed,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        letter_id = d.pop("letter_id")

        def _parse_id(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        id = _parse_id(d.pop("id"))


        to_queue = d.pop("to_queue")

        edited = d.pop("edited")

        forced = d.pop("forced")

        removed = d.pop("removed")

        redriven_letter = cls(
            letter_id=letter_id,
            id=id,
            to_queue=to_queue,
            edited=edited,
            forced=forced,
            removed=removed,
        )


        redriven_letter.additional_properties = d
        return redriven_letter

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
