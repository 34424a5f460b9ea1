from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast






T = TypeVar("T", bound="Stats")



@_attrs_define
class Stats:
    """ Counts of a queue. `null`: the broker does not report this count.

        Attributes:
            depth (int | None): Ready messages.
            in_flight (int | None): Leased messages.
            delayed (int | None): Messages with a delay that has not passed, and parked ones; `null` also while the parking
                broker is down.
            dead (int | None): Dead letters.
            oldest_age_seconds (float | None): Age of the oldest ready message in seconds; `null` without one.
            foreign (int | None): Messages of another program that were left on the queue at the last look; `null` where
                none are left.
     """

    depth: int | None
    in_flight: int | None
    delayed: int | None
    dead: int | None
    oldest_age_seconds: float | None
    foreign: int | None
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        depth: int | None
        depth = self.depth

        in_flight: int | None
        in_flight = self.in_flight

        delayed: int | None
        delayed = self.delayed

        dead: int | None
        dead = self.dead

        oldest_age_seconds: float | None
        oldest_age_seconds = self.oldest_age_seconds

        foreign: int | None
        foreign = self.foreign


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "depth": depth,
            "in_flight": in_flight,
            "delayed": delayed,
            "dead": dead,
            "oldest_age_seconds": oldest_age_seconds,
            "foreign": foreign,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        def _parse_depth(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        depth = _parse_depth(d.pop("depth"))


        def _parse_in_flight(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        in_flight = _parse_in_flight(d.pop("in_flight"))


        def _parse_delayed(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        delayed = _parse_delayed(d.pop("delayed"))


        def _parse_dead(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        dead = _parse_dead(d.pop("dead"))


        def _parse_oldest_age_seconds(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        oldest_age_seconds = _parse_oldest_age_seconds(d.pop("oldest_age_seconds"))


        def _parse_foreign(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        foreign = _parse_foreign(d.pop("foreign"))


        stats = cls(
            depth=depth,
            in_flight=in_flight,
            delayed=delayed,
            dead=dead,
            oldest_age_seconds=oldest_age_seconds,
            foreign=foreign,
        )


        stats.additional_properties = d
        return stats

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
