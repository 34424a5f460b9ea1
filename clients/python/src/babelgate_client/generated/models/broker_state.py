from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.broker_state_circuit import BrokerStateCircuit
from ..models.broker_state_circuit import check_broker_state_circuit
from typing import cast






T = TypeVar("T", bound="BrokerState")



@_attrs_define
class BrokerState:
    """ The current state of a broker.

        Attributes:
            broker (str): The configured name of the broker.
            required (bool): Whether `/readyz` fails while this broker is down.
            up (bool): Whether the broker answered now.
            circuit (BrokerStateCircuit): `open`: this process refuses calls to the broker with 503, because it answered no
                ping.
            warnings (list[str]): What is doubtful in the set-up of the broker.
     """

    broker: str
    required: bool
    up: bool
    circuit: BrokerStateCircuit
    warnings: list[str]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        broker = self.broker

        required = self.required

        up = self.up

        circuit: str = self.circuit

        warnings = self.warnings




        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "broker": broker,
            "required": required,
            "up": up,
            "circuit": circuit,
            "warnings": warnings,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        broker = d.pop("broker")

        required = d.pop("required")

        up = d.pop("up")

        circuit = check_broker_state_circuit(d.pop("circuit"))




        warnings = cast(list[str], d.pop("warnings"))


        broker_state = cls(
            broker=broker,
            required=required,
            up=up,
            circuit=circuit,
            warnings=warnings,
        )


        broker_state.additional_properties = d
        return broker_state

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
