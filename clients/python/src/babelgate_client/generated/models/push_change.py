from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.push_change_source import check_push_change_source
from ..models.push_change_source import PushChangeSource
from typing import cast

if TYPE_CHECKING:
  from ..models.push_state import PushState
  from ..models.push_target import PushTarget





T = TypeVar("T", bound="PushChange")



@_attrs_define
class PushChange:
    """ The push of a queue after a change, and which processes know it.

        Attributes:
            queue (str): The name of the queue in paths.
            source (PushChangeSource): Where the target comes from. One of the configuration cannot be changed by calls.
            paused (bool): Whether nothing is pushed until `:resume`.
            target (PushTarget): A target, without its secrets.
            state (None | PushState): `null` while the push is paused, or does not run; the log has the reason.
            told (int): How many other processes have confirmed that they know the change.
            silent (list[str]): Peers that gave no answer, by address or socket. They learn it when they answer again.
     """

    queue: str
    source: PushChangeSource
    paused: bool
    target: PushTarget
    state: None | PushState
    told: int
    silent: list[str]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.push_state import PushState # noqa: PLC0415
        from ..models.push_target import PushTarget # noqa: PLC0415
        queue = self.queue

        source: str = self.source

        paused = self.paused

        target = self.target.to_dict()

        state: dict[str, Any] | None
        if isinstance(self.state, PushState):
            state = self.state.to_dict()
        else:
            state = self.state

        told = self.told

        silent = self.silent




        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "queue": queue,
            "source": source,
            "paused": paused,
            "target": target,
            "state": state,
            "told": told,
            "silent": silent,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.push_state import PushState # noqa: PLC0415
        from ..models.push_target import PushTarget # noqa: PLC0415
        d = dict(src_dict)
        queue = d.pop("queue")

        source = check_push_change_source(d.pop("source"))




        paused = d.pop("paused")

        target = PushTarget.from_dict(d.pop("target"))




        def _parse_state(data: object) -> None | PushState:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                state_type_0 = PushState.from_dict(data)



                return state_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(None | PushState, data)

        state = _parse_state(d.pop("state"))


        told = d.pop("told")

        silent = cast(list[str], d.pop("silent"))


        push_change = cls(
            queue=queue,
            source=source,
            paused=paused,
            target=target,
            state=state,
            told=told,
            silent=silent,
        )


        push_change.additional_properties = d
        return push_change

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
