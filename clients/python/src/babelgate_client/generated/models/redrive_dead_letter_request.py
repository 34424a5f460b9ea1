from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast

if TYPE_CHECKING:
  from ..models.dead_letter_edit import DeadLetterEdit





T = TypeVar("T", bound="RedriveDeadLetterRequest")



@_attrs_define
class RedriveDeadLetterRequest:
    """ How to send one dead letter back. ``to_queue`` defaults to the queue of the path.

        Attributes:
            to_queue (None | str | Unset):
            edit (DeadLetterEdit | None | Unset):
            force (bool | Unset): Send a record without a valid envelope: its original bytes, and the native headers where
                the target has them. Requires a `to_queue` other than the queue of the path. Default: false.
     """

    to_queue: None | str | Unset = UNSET
    edit: DeadLetterEdit | None | Unset = UNSET
    force: bool | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        from ..models.dead_letter_edit import DeadLetterEdit # noqa: PLC0415
        to_queue: None | str | Unset
        if isinstance(self.to_queue, Unset):
            to_queue = UNSET
        else:
            to_queue = self.to_queue

        edit: dict[str, Any] | None | Unset
        if isinstance(self.edit, Unset):
            edit = UNSET
        elif isinstance(self.edit, DeadLetterEdit):
            edit = self.edit.to_dict()
        else:
            edit = self.edit

        force = self.force


        field_dict: dict[str, Any] = {}

        field_dict.update({
        })
        if to_queue is not UNSET:
            field_dict["to_queue"] = to_queue
        if edit is not UNSET:
            field_dict["edit"] = edit
        if force is not UNSET:
            field_dict["force"] = force

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.dead_letter_edit import DeadLetterEdit # noqa: PLC0415
        d = dict(src_dict)
        def _parse_to_queue(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        to_queue = _parse_to_queue(d.pop("to_queue", UNSET))


        def _parse_edit(data: object) -> DeadLetterEdit | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                edit_type_0 = DeadLetterEdit.from_dict(data)



                return edit_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(DeadLetterEdit | None | Unset, data)

        edit = _parse_edit(d.pop("edit", UNSET))


        force = d.pop("force", UNSET)

        redrive_dead_letter_request = cls(
            to_queue=to_queue,
            edit=edit,
            force=force,
        )

        return redrive_dead_letter_request

