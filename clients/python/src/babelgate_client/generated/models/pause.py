from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.pause_publishes import check_pause_publishes
from ..models.pause_publishes import PausePublishes
from typing import cast






T = TypeVar("T", bound="Pause")



@_attrs_define
class Pause:
    """ The pause of a queue.

        Attributes:
            paused_at (int): Since when the queue is paused, Unix milliseconds UTC.
            by (str): The name of the token that paused the queue, or that changed the pause last.
            publishes (PausePublishes): What becomes of publishes meanwhile.
            reason (None | str): Why, in words; `null`: none was given.
     """

    paused_at: int
    by: str
    publishes: PausePublishes
    reason: None | str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        paused_at = self.paused_at

        by = self.by

        publishes: str = self.publishes

        reason: None | str
        reason = self.reason


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "paused_at": paused_at,
            "by": by,
            "publishes": publishes,
            "reason": reason,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        paused_at = d.pop("paused_at")

        by = d.pop("by")

        publishes = check_pause_publishes(d.pop("publishes"))




        def _parse_reason(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        reason = _parse_reason(d.pop("reason"))


        pause = cls(
            paused_at=paused_at,
            by=by,
            publishes=publishes,
            reason=reason,
        )


        pause.additional_properties = d
        return pause

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
