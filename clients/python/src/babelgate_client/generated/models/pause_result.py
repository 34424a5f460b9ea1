from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.pause import Pause





T = TypeVar("T", bound="PauseResult")



@_attrs_define
class PauseResult:
    """ The state of a queue after a pause or a resume, and which processes know it.

        Attributes:
            queue (str): The name of the queue in paths.
            pause (None | Pause): The pause in force; `null`: the queue is not paused.
            kept (bool): Whether `state_dir` has it. `false`: it is in memory, and ends with the process that answers.
            told (int): How many other processes have confirmed that they know it.
            silent (list[str]): Peers that gave no answer, by address or socket. They learn it when they answer again.
            detail (str): The same in sentences for people.
     """

    queue: str
    pause: None | Pause
    kept: bool
    told: int
    silent: list[str]
    detail: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.pause import Pause # noqa: PLC0415
        queue = self.queue

        pause: dict[str, Any] | None
        if isinstance(self.pause, Pause):
            pause = self.pause.to_dict()
        else:
            pause = self.pause

        kept = self.kept

        told = self.told

        silent = self.silent



        detail = self.detail


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "queue": queue,
            "pause": pause,
            "kept": kept,
            "told": told,
            "silent": silent,
            "detail": detail,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.pause import Pause # noqa: PLC0415
        d = dict(src_dict)
        queue = d.pop("queue")

        def _parse_pause(data: object) -> None | Pause:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                pause_type_0 = Pause.from_dict(data)



                return pause_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(None | Pause, data)

        pause = _parse_pause(d.pop("pause"))


        kept = d.pop("kept")

        told = d.pop("told")

        silent = cast(list[str], d.pop("silent"))


        detail = d.pop("detail")

        pause_result = cls(
            queue=queue,
            pause=pause,
            kept=kept,
            told=told,
            silent=silent,
            detail=detail,
        )


        pause_result.additional_properties = d
        return pause_result

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
