from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.push_failure_code import check_push_failure_code
from ..models.push_failure_code import PushFailureCode
from typing import cast






T = TypeVar("T", bound="PushFailure")



@_attrs_define
class PushFailure:
    """ A post that was no success.

        Attributes:
            at (int): When it began; Unix milliseconds UTC.
            webhook_id (str): The `webhook-id` of the message.
            status (int | None): The status of the answer; `null` without one.
            code (PushFailureCode): Whether the status was no success, there was no answer, or no connection.
            detail (str): The same for people, with the beginning of the answer.
     """

    at: int
    webhook_id: str
    status: int | None
    code: PushFailureCode
    detail: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        at = self.at

        webhook_id = self.webhook_id

        status: int | None
        status = self.status

        code: str = self.code

        detail = self.detail


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "at": at,
            "webhook_id": webhook_id,
            "status": status,
            "code": code,
            "detail": detail,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        at = d.pop("at")

        webhook_id = d.pop("webhook_id")

        def _parse_status(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        status = _parse_status(d.pop("status"))


        code = check_push_failure_code(d.pop("code"))




        detail = d.pop("detail")

        push_failure = cls(
            at=at,
            webhook_id=webhook_id,
            status=status,
            code=code,
            detail=detail,
        )


        push_failure.additional_properties = d
        return push_failure

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
