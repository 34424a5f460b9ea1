from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.broker_circuit import BrokerCircuit
from ..models.broker_circuit import check_broker_circuit
from typing import cast

if TYPE_CHECKING:
  from ..models.capabilities import Capabilities





T = TypeVar("T", bound="Broker")



@_attrs_define
class Broker:
    """ A broker and its current state.

        Attributes:
            broker (str): The configured name of the broker.
            kind (str): The kind of the broker, such as `sqlite`.
            url (str): The URL, without its secrets.
            required (bool): Whether `/readyz` fails while this broker is down.
            up (bool): Whether the broker answered now.
            circuit (BrokerCircuit): `open`: this process refuses calls to the broker with 503, because it answered no ping.
            detail (None | str): The error, when the broker is down.
            warnings (list[str]): What is doubtful in the set-up of the broker.
            capabilities (Capabilities): What the broker of a queue can do.
     """

    broker: str
    kind: str
    url: str
    required: bool
    up: bool
    circuit: BrokerCircuit
    detail: None | str
    warnings: list[str]
    capabilities: Capabilities
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.capabilities import Capabilities # noqa: PLC0415
        broker = self.broker

        kind = self.kind

        url = self.url

        required = self.required

        up = self.up

        circuit: str = self.circuit

        detail: None | str
        detail = self.detail

        warnings = self.warnings



        capabilities = self.capabilities.to_dict()


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "broker": broker,
            "kind": kind,
            "url": url,
            "required": required,
            "up": up,
            "circuit": circuit,
            "detail": detail,
            "warnings": warnings,
            "capabilities": capabilities,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.capabilities import Capabilities # noqa: PLC0415
        d = dict(src_dict)
        broker = d.pop("broker")

        kind = d.pop("kind")

        url = d.pop("url")

        required = d.pop("required")

        up = d.pop("up")

        circuit = check_broker_circuit(d.pop("circuit"))




        def _parse_detail(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        detail = _parse_detail(d.pop("detail"))


        warnings = cast(list[str], d.pop("warnings"))


        capabilities = Capabilities.from_dict(d.pop("capabilities"))




        broker = cls(
            broker=broker,
            kind=kind,
            url=url,
            required=required,
            up=up,
            circuit=circuit,
            detail=detail,
            warnings=warnings,
            capabilities=capabilities,
        )


        broker.additional_properties = d
        return broker

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
