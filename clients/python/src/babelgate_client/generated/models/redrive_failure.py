from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast






T = TypeVar("T", bound="RedriveFailure")



@_attrs_define
class RedriveFailure:
    """ A dead letter that was not sent back; it stays in place.

        Attributes:
            letter_id (str): The id of the dead letter in its queue.
            id (None | str): The message's `meta.id`; `null`: it has none, or one of over 1,000 characters.
            code (str): A stable code, for programs.
            detail (str): A sentence for people.
     """

    letter_id: str
    id: None | str
    code: str
    detail: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        letter_id = self.letter_id

        id: None | str
        id = self.id

        code = self.code

        detail = self.detail


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "letter_id": letter_id,
            "id": id,
            "code": code,
            "detail": detail,
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


        code = d.pop("code")

        detail = d.pop("detail")

        redrive_failure = cls(
            letter_id=letter_id,
            id=id,
            code=code,
            detail=detail,
        )


        redrive_failure.additional_properties = d
        return redrive_failure

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
