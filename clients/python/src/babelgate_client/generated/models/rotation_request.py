from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast






T = TypeVar("T", bound="RotationRequest")



@_attrs_define
class RotationRequest:
    """ How to rotate. Without a body: the old secret is valid for an hour, and the end stays.

        Attributes:
            overlap_seconds (float | Unset): Seconds for which the old secret stays valid: 0 to 2592000; 0: it is invalid at
                once. Default: 3600.
            ttl_seconds (float | None | Unset): Seconds from now to the new end, at most `auth.made_tokens.max_ttl_seconds`;
                may be decimal. Without it and `ends_at` the end stays.
            ends_at (int | None | Unset): The new end, Unix milliseconds UTC.
     """

    overlap_seconds: float | Unset = UNSET
    ttl_seconds: float | None | Unset = UNSET
    ends_at: int | None | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        overlap_seconds = self.overlap_seconds

        ttl_seconds: float | None | Unset
        if isinstance(self.ttl_seconds, Unset):
            ttl_seconds = UNSET
        else:
            ttl_seconds = self.ttl_seconds

        ends_at: int | None | Unset
        if isinstance(self.ends_at, Unset):
            ends_at = UNSET
        else:
            ends_at = self.ends_at


        field_dict: dict[str, Any] = {}

        field_dict.update({
        })
        if overlap_seconds is not UNSET:
            field_dict["overlap_seconds"] = overlap_seconds
        if ttl_seconds is not UNSET:
            field_dict["ttl_seconds"] = ttl_seconds
        if ends_at is not UNSET:
            field_dict["ends_at"] = ends_at

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        overlap_seconds = d.pop("overlap_seconds", UNSET)

        def _parse_ttl_seconds(data: object) -> float | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(float | None | Unset, data)

        ttl_seconds = _parse_ttl_seconds(d.pop("ttl_seconds", UNSET))


        def _parse_ends_at(data: object) -> int | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(int | None | Unset, data)

        ends_at = _parse_ends_at(d.pop("ends_at", UNSET))


        rotation_request = cls(
            overlap_seconds=overlap_seconds,
            ttl_seconds=ttl_seconds,
            ends_at=ends_at,
        )

        return rotation_request

