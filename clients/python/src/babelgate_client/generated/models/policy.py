from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.policy_expired import check_policy_expired
from ..models.policy_expired import PolicyExpired
from ..models.policy_ordering_key import check_policy_ordering_key
from ..models.policy_ordering_key import PolicyOrderingKey
from typing import cast

if TYPE_CHECKING:
  from ..models.queue_limits import QueueLimits





T = TypeVar("T", bound="Policy")



@_attrs_define
class Policy:
    """ The configured rules of a queue.

        Attributes:
            lease_seconds (float): Seconds of a lease when a receive names none.
            max_attempts (int): Failed deliveries after which a message is dead-lettered.
            backoff_seconds (list[float]): Seconds before the next delivery, after each failed one; the last value repeats.
            ttl_seconds (float | None): Seconds after which a message expires; `null`: never.
            dead_letter_retention_seconds (float | None): Seconds for which a dead letter is kept; `null`: forever.
            ordering_key (PolicyOrderingKey): What becomes of a message with an `ordering_key`, when the queue keeps no
                order.
            expired (PolicyExpired): What becomes of an expired message.
            limits (None | QueueLimits): The limits of the queue; `null`: none.
     """

    lease_seconds: float
    max_attempts: int
    backoff_seconds: list[float]
    ttl_seconds: float | None
    dead_letter_retention_seconds: float | None
    ordering_key: PolicyOrderingKey
    expired: PolicyExpired
    limits: None | QueueLimits
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.queue_limits import QueueLimits # noqa: PLC0415
        lease_seconds = self.lease_seconds

        max_attempts = self.max_attempts

        backoff_seconds = self.backoff_seconds



        ttl_seconds: float | None
        ttl_seconds = self.ttl_seconds

        dead_letter_retention_seconds: float | None
        dead_letter_retention_seconds = self.dead_letter_retention_seconds

        ordering_key: str = self.ordering_key

        expired: str = self.expired

        limits: dict[str, Any] | None
        if isinstance(self.limits, QueueLimits):
            limits = self.limits.to_dict()
        else:
            limits = self.limits


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "lease_seconds": lease_seconds,
            "max_attempts": max_attempts,
            "backoff_seconds": backoff_seconds,
            "ttl_seconds": ttl_seconds,
            "dead_letter_retention_seconds": dead_letter_retention_seconds,
            "ordering_key": ordering_key,
            "expired": expired,
            "limits": limits,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.queue_limits import QueueLimits # noqa: PLC0415
        d = dict(src_dict)
        lease_seconds = d.pop("lease_seconds")

        max_attempts = d.pop("max_attempts")

        backoff_seconds = cast(list[float], d.pop("backoff_seconds"))


        def _parse_ttl_seconds(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        ttl_seconds = _parse_ttl_seconds(d.pop("ttl_seconds"))


        def _parse_dead_letter_retention_seconds(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        dead_letter_retention_seconds = _parse_dead_letter_retention_seconds(d.pop("dead_letter_retention_seconds"))


        ordering_key = check_policy_ordering_key(d.pop("ordering_key"))




        expired = check_policy_expired(d.pop("expired"))




        def _parse_limits(data: object) -> None | QueueLimits:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                limits_type_0 = QueueLimits.from_dict(data)



                return limits_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(None | QueueLimits, data)

        limits = _parse_limits(d.pop("limits"))


        policy = cls(
            lease_seconds=lease_seconds,
            max_attempts=max_attempts,
            backoff_seconds=backoff_seconds,
            ttl_seconds=ttl_seconds,
            dead_letter_retention_seconds=dead_letter_retention_seconds,
            ordering_key=ordering_key,
            expired=expired,
            limits=limits,
        )


        policy.additional_properties = d
        return policy

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
