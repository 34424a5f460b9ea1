from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.pause_request_publishes import check_pause_request_publishes
from ..models.pause_request_publishes import PauseRequestPublishes
from ..types import UNSET, Unset
from typing import cast






T = TypeVar("T", bound="PauseRequest")



@_attrs_define
class PauseRequest:
    """ How to pause. Without a body: publishes are accepted.

        Attributes:
            publishes (PauseRequestPublishes | Unset): `refuse`: publishes get 409 `queue_paused` until the queue is
                resumed.
            reason (None | str | Unset): Why, in words: everybody who sees the queue sees it.
     """

    publishes: PauseRequestPublishes | Unset = UNSET
    reason: None | str | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        publishes: str | Unset = UNSET
        if not isinstance(self.publishes, Unset):
            publishes = self.publishes


        reason: None | str | Unset
        if isinstance(self.reason, Unset):
            reason = UNSET
        else:
            reason = self.reason


        field_dict: dict[str, Any] = {}

        field_dict.update({
        })
        if publishes is not UNSET:
            field_dict["publishes"] = publishes
        if reason is not UNSET:
            field_dict["reason"] = reason

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        _publishes = d.pop("publishes", UNSET)
        publishes: PauseRequestPublishes | Unset
        if isinstance(_publishes,  Unset):
            publishes = UNSET
        else:
            publishes = check_pause_request_publishes(_publishes)




        def _parse_reason(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        reason = _parse_reason(d.pop("reason", UNSET))


        pause_request = cls(
            publishes=publishes,
            reason=reason,
        )

        return pause_request

