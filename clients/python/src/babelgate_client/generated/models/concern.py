from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.concern_kind import check_concern_kind
from ..models.concern_kind import ConcernKind
from typing import cast






T = TypeVar("T", bound="Concern")



@_attrs_define
class Concern:
    """ Something that needs attention.

        Attributes:
            kind (ConcernKind): What it is, for programs.
            broker (str): The configured name of the broker.
            queue (None | str): The name of the queue in paths; `null`: the broker as a whole.
            count (int | None): New dead letters of the last hour that are still there, failed calls of the last hour, or
                foreign messages.
            oldest_age_seconds (float | None): Age of the oldest ready message in seconds, for `old_messages`: more than
                900.
            detail (str): A sentence for people.
     """

    kind: ConcernKind
    broker: str
    queue: None | str
    count: int | None
    oldest_age_seconds: float | None
    detail: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        kind: str = self.kind

        broker = self.broker

        queue: None | str
        queue = self.queue

        count: int | None
        count = self.count

        oldest_age_seconds: float | None
        oldest_age_seconds = self.oldest_age_seconds

        detail = self.detail


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "kind": kind,
            "broker": broker,
            "queue": queue,
            "count": count,
            "oldest_age_seconds": oldest_age_seconds,
            "detail": detail,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        kind = check_concern_kind(d.pop("kind"))




        broker = d.pop("broker")

        def _parse_queue(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        queue = _parse_queue(d.pop("queue"))


        def _parse_count(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        count = _parse_count(d.pop("count"))


        def _parse_oldest_age_seconds(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        oldest_age_seconds = _parse_oldest_age_seconds(d.pop("oldest_age_seconds"))


        detail = d.pop("detail")

        concern = cls(
            kind=kind,
            broker=broker,
            queue=queue,
            count=count,
            oldest_age_seconds=oldest_age_seconds,
            detail=detail,
        )


        concern.additional_properties = d
        return concern

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
