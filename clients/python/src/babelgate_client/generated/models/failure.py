from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast






T = TypeVar("T", bound="Failure")



@_attrs_define
class Failure:
    """ The reason of a failure; stored in the message's ``dead_letter`` block.

        Attributes:
            message (None | str | Unset):
            exception (None | str | Unset):
     """

    message: None | str | Unset = UNSET
    exception: None | str | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        message: None | str | Unset
        if isinstance(self.message, Unset):
            message = UNSET
        else:
            message = self.message

        exception: None | str | Unset
        if isinstance(self.exception, Unset):
            exception = UNSET
        else:
            exception = self.exception


        field_dict: dict[str, Any] = {}

        field_dict.update({
        })
        if message is not UNSET:
            field_dict["message"] = message
        if exception is not UNSET:
            field_dict["exception"] = exception

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        def _parse_message(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        message = _parse_message(d.pop("message", UNSET))


        def _parse_exception(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        exception = _parse_exception(d.pop("exception", UNSET))


        failure = cls(
            message=message,
            exception=exception,
        )

        return failure

