from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset







T = TypeVar("T", bound="IdempotencyKeys")



@_attrs_define
class IdempotencyKeys:
    """ How the queue keeps idempotency keys.

        Attributes:
            broker (str): The broker that keeps the keys.
            in_one_transaction (bool): `true`: key and message are written in one transaction (exactly once); `false`: at
                most once.
            retention_seconds (float): Seconds for which a key is remembered.
            max_keys (int): Maximum number of keys kept at a time. Further publishes with a key are 503; beyond their
                caller's share, 429.
     """

    broker: str
    in_one_transaction: bool
    retention_seconds: float
    max_keys: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        broker = self.broker

        in_one_transaction = self.in_one_transaction

        retention_seconds = self.retention_seconds

        max_keys = self.max_keys


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "broker": broker,
            "in_one_transaction": in_one_transaction,
            "retention_seconds": retention_seconds,
            "max_keys": max_keys,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        broker = d.pop("broker")

        in_one_transaction = d.pop("in_one_transaction")

        retention_seconds = d.pop("retention_seconds")

        max_keys = d.pop("max_keys")

        idempotency_keys = cls(
            broker=broker,
            in_one_transaction=in_one_transaction,
            retention_seconds=retention_seconds,
            max_keys=max_keys,
        )


        idempotency_keys.additional_properties = d
        return idempotency_keys

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
