from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast






T = TypeVar("T", bound="PushTestResult")



@_attrs_define
class PushTestResult:
    """ What became of a test post.

        Attributes:
            webhook_id (str): Its `webhook-id`, which begins with `test_`.
            status (int | None): The status of the answer; `null` without one.
            seconds (float): Its duration in seconds.
            detail (str): The beginning of the answer, or why there was none.
     """

    webhook_id: str
    status: int | None
    seconds: float
    detail: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        webhook_id = self.webhook_id

        status: int | None
        status = self.status

        seconds = self.seconds

        detail = self.detail


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "webhook_id": webhook_id,
            "status": status,
            "seconds": seconds,
            "detail": detail,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        webhook_id = d.pop("webhook_id")

        def _parse_status(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        status = _parse_status(d.pop("status"))


        seconds = d.pop("seconds")

        detail = d.pop("detail")

        push_test_result = cls(
            webhook_id=webhook_id,
            status=status,
            seconds=seconds,
            detail=detail,
        )


        push_test_result.additional_properties = d
        return push_test_result

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
