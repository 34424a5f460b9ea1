from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.circuit_circuit import check_circuit_circuit
from ..models.circuit_circuit import CircuitCircuit
from typing import cast






T = TypeVar("T", bound="Circuit")



@_attrs_define
class Circuit:
    """ The circuit of a broker.

        Attributes:
            broker (str): The configured name of the broker.
            circuit (CircuitCircuit): `open`: this process refuses calls to the broker with 503, because it answered no
                ping.
     """

    broker: str
    circuit: CircuitCircuit
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        broker = self.broker

        circuit: str = self.circuit


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "broker": broker,
            "circuit": circuit,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        broker = d.pop("broker")

        circuit = check_circuit_circuit(d.pop("circuit"))




        circuit = cls(
            broker=broker,
            circuit=circuit,
        )


        circuit.additional_properties = d
        return circuit

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
