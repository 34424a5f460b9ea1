from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.token_result_action import check_token_result_action
from ..models.token_result_action import TokenResultAction
from ..types import UNSET, Unset
from typing import cast






T = TypeVar("T", bound="TokenResult")



@_attrs_define
class TokenResult:
    """ The result of one token. ``index`` counts within the tokens of its action. ``lease_expires_at`` (Unix milliseconds)
    is given after an extend.

        Attributes:
            index (int): The position of the token among those of its action, from 0.
            action (TokenResultAction): What was to be done.
            status (int): The HTTP status of this token on its own.
            code (None | str | Unset): For a failure: its stable code, for programs.
            detail (None | str | Unset): For a failure: a sentence for people.
            retryable (bool | None | Unset): For a failure: whether the same request may succeed later.
            lease_expires_at (int | None | Unset): After an extend: when the lease ends; Unix milliseconds UTC.
            dead_lettered (bool | None | Unset): True after a nack of the last attempt: the message is a dead letter, not
                delivered again.
     """

    index: int
    action: TokenResultAction
    status: int
    code: None | str | Unset = UNSET
    detail: None | str | Unset = UNSET
    retryable: bool | None | Unset = UNSET
    lease_expires_at: int | None | Unset = UNSET
    dead_lettered: bool | None | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        index = self.index

        action: str = self.action

        status = self.status

        code: None | str | Unset
        if isinstance(self.code, Unset):
            code = UNSET
        else:
            code = self.code

        detail: None | str | Unset
        if isinstance(self.detail, Unset):
            detail = UNSET
        else:
            detail = self.detail

        retryable: bool | None | Unset
        if isinstance(self.retryable, Unset):
            retryable = UNSET
        else:
            retryable = self.retryable

        lease_expires_at: int | None | Unset
        if isinstance(self.lease_expires_at, Unset):
            lease_expires_at = UNSET
        else:
            lease_expires_at = self.lease_expires_at

        dead_lettered: bool | None | Unset
        if isinstance(self.dead_lettered, Unset):
            dead_lettered = UNSET
        else:
            dead_lettered = self.dead_lettered


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "index": index,
            "action": action,
            "status": status,
        })
        if code is not UNSET:
            field_dict["code"] = code
        if detail is not UNSET:
            field_dict["detail"] = detail
        if retryable is not UNSET:
            field_dict["retryable"] = retryable
        if lease_expires_at is not UNSET:
            field_dict["lease_expires_at"] = lease_expires_at
        if dead_lettered is not UNSET:
            field_dict["dead_lettered"] = dead_lettered

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        index = d.pop("index")

        action = check_token_result_action(d.pop("action"))




        status = d.pop("status")

        def _parse_code(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        code = _parse_code(d.pop("code", UNSET))


        def _parse_detail(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        detail = _parse_detail(d.pop("detail", UNSET))


        def _parse_retryable(data: object) -> bool | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(bool | None | Unset, data)

        retryable = _parse_retryable(d.pop("retryable", UNSET))


        def _parse_lease_expires_at(data: object) -> int | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(int | None | Unset, data)

        lease_expires_at = _parse_lease_expires_at(d.pop("lease_expires_at", UNSET))


        def _parse_dead_lettered(data: object) -> bool | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(bool | None | Unset, data)

        dead_lettered = _parse_dead_lettered(d.pop("dead_lettered", UNSET))


        token_result = cls(
            index=index,
            action=action,
            status=status,
            code=code,
            detail=detail,
            retryable=retryable,
            lease_expires_at=lease_expires_at,
            dead_lettered=dead_lettered,
        )


        token_result.additional_properties = d
        return token_result

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
