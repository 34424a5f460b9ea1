from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.queue_limits_counted_in import check_queue_limits_counted_in
from ..models.queue_limits_counted_in import QueueLimitsCountedIn
from typing import cast

if TYPE_CHECKING:
  from ..models.rate_terms import RateTerms





T = TypeVar("T", bound="QueueLimits")



@_attrs_define
class QueueLimits:
    """ The limits of a queue. Requests and messages beyond a rate get 429 `rate_exceeded`.

        Attributes:
            requests_per_second (float | None): Requests a second, whatever they ask for.
            messages_per_second (float | None): Published messages a second.
            bytes_per_second (float | None): Bytes of published messages a second.
            burst_seconds (int): After a pause, as much may come at once as the limits allow in this number of seconds.
            max_message_bytes (int | None): Size of one message as it is sent.
            max_receives (int | None): Receives at a time, as `counted_in` says.
            max_streams (int | None): Streams at a time, as `counted_in` says.
            max_leases (int | None): Leases of messages at a time, as `counted_in` says.
            per_identity (None | RateTerms): The limits of each identity on this queue; `null`: none.
            max_depth (int | None): Messages beyond which publishes get 429 `queue_full`; `null`: any.
            counted_in (QueueLimitsCountedIn): `process`: each for itself; `replicas`: together.
     """

    requests_per_second: float | None
    messages_per_second: float | None
    bytes_per_second: float | None
    burst_seconds: int
    max_message_bytes: int | None
    max_receives: int | None
    max_streams: int | None
    max_leases: int | None
    per_identity: None | RateTerms
    max_depth: int | None
    counted_in: QueueLimitsCountedIn
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.rate_terms import RateTerms # noqa: PLC0415
        requests_per_second: float | None
        requests_per_second = self.requests_per_second

        messages_per_second: float | None
        messages_per_second = self.messages_per_second

        bytes_per_second: float | None
        bytes_per_second = self.bytes_per_second

        burst_seconds = self.burst_seconds

        max_message_bytes: int | None
        max_message_bytes = self.max_message_bytes

        max_receives: int | None
        max_receives = self.max_receives

        max_streams: int | None
        max_streams = self.max_streams

        max_leases: int | None
        max_leases = self.max_leases

        per_identity: dict[str, Any] | None
        if isinstance(self.per_identity, RateTerms):
            per_identity = self.per_identity.to_dict()
        else:
            per_identity = self.per_identity

        max_depth: int | None
        max_depth = self.max_depth

        counted_in: str = self.counted_in


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "requests_per_second": requests_per_second,
            "messages_per_second": messages_per_second,
            "bytes_per_second": bytes_per_second,
            "burst_seconds": burst_seconds,
            "max_message_bytes": max_message_bytes,
            "max_receives": max_receives,
            "max_streams": max_streams,
            "max_leases": max_leases,
            "per_identity": per_identity,
            "max_depth": max_depth,
            "counted_in": counted_in,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.rate_terms import RateTerms # noqa: PLC0415
        d = dict(src_dict)
        def _parse_requests_per_second(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        requests_per_second = _parse_requests_per_second(d.pop("requests_per_second"))


        def _parse_messages_per_second(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        messages_per_second = _parse_messages_per_second(d.pop("messages_per_second"))


        def _parse_bytes_per_second(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        bytes_per_second = _parse_bytes_per_second(d.pop("bytes_per_second"))


        burst_seconds = d.pop("burst_seconds")

        def _parse_max_message_bytes(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        max_message_bytes = _parse_max_message_bytes(d.pop("max_message_bytes"))


        def _parse_max_receives(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        max_receives = _parse_max_receives(d.pop("max_receives"))


        def _parse_max_streams(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        max_streams = _parse_max_streams(d.pop("max_streams"))


        def _parse_max_leases(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        max_leases = _parse_max_leases(d.pop("max_leases"))


        def _parse_per_identity(data: object) -> None | RateTerms:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                per_identity_type_0 = RateTerms.from_dict(data)



                return per_identity_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(None | RateTerms, data)

        per_identity = _parse_per_identity(d.pop("per_identity"))


        def _parse_max_depth(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        max_depth = _parse_max_depth(d.pop("max_depth"))


        counted_in = check_queue_limits_counted_in(d.pop("counted_in"))




        queue_limits = cls(
            requests_per_second=requests_per_second,
            messages_per_second=messages_per_second,
            bytes_per_second=bytes_per_second,
            burst_seconds=burst_seconds,
            max_message_bytes=max_message_bytes,
            max_receives=max_receives,
            max_streams=max_streams,
            max_leases=max_leases,
            per_identity=per_identity,
            max_depth=max_depth,
            counted_in=counted_in,
        )


        queue_limits.additional_properties = d
        return queue_limits

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
