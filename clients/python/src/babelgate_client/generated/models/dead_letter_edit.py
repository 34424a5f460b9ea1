from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast

if TYPE_CHECKING:
  from ..models.dead_letter_edit_body import DeadLetterEditBody
  from ..models.dead_letter_edit_data import DeadLetterEditData





T = TypeVar("T", bound="DeadLetterEdit")



@_attrs_define
class DeadLetterEdit:
    """ The change of a dead letter: either its new ``data``, or a new ``body``: an envelope, a draft or an entry.

        Attributes:
            data (DeadLetterEditData | Unset): The new `data`; other members stay as they are.
            body (DeadLetterEditBody | Unset): The new message: an envelope, a draft or an entry.
     """

    data: DeadLetterEditData | Unset = UNSET
    body: DeadLetterEditBody | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        from ..models.dead_letter_edit_body import DeadLetterEditBody # noqa: PLC0415
        from ..models.dead_letter_edit_data import DeadLetterEditData # noqa: PLC0415
        data: dict[str, Any] | Unset = UNSET
        if not isinstance(self.data, Unset):
            data = self.data.to_dict()

        body: dict[str, Any] | Unset = UNSET
        if not isinstance(self.body, Unset):
            body = self.body.to_dict()


        field_dict: dict[str, Any] = {}

        field_dict.update({
        })
        if data is not UNSET:
            field_dict["data"] = data
        if body is not UNSET:
            field_dict["body"] = body

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.dead_letter_edit_body import DeadLetterEditBody # noqa: PLC0415
        from ..models.dead_letter_edit_data import DeadLetterEditData # noqa: PLC0415
        d = dict(src_dict)
        _data = d.pop("data", UNSET)
        data: DeadLetterEditData | Unset
        if isinstance(_data,  Unset):
            data = UNSET
        else:
            data = DeadLetterEditData.from_dict(_data)




        _body = d.pop("body", UNSET)
        body: DeadLetterEditBody | Unset
        if isinstance(_body,  Unset):
            body = UNSET
        else:
            body = DeadLetterEditBody.from_dict(_body)




        dead_letter_edit = cls(
            data=data,
            body=body,
        )

        return dead_letter_edit

