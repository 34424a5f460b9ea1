from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.push_state_circuit import check_push_state_circuit
from ..models.push_state_circuit import PushStateCircuit
from typing import cast

if TYPE_CHECKING:
  from ..models.push_failure import PushFailure
  from ..models.push_outcomes import PushOutcomes





T = TypeVar("T", bound="PushState")



@_attrs_define
class PushState:
    """ The state of a push in the process that answers.

        Attributes:
            circuit (PushStateCircuit): `open`: nothing is pushed for `wait_seconds`. `half_open`: a single message probes
                the target.
            wait_seconds (float): Seconds until a message is pushed again; 0 while nothing holds it.
            in_flight (int): Messages that were received and are not settled yet.
            outcomes (PushOutcomes): What became of the posts since the push started in the process that answers.
            failures (list[PushFailure]): The latest failures, at most 10, the newest last.
     """

    circuit: PushStateCircuit
    wait_seconds: float
    in_flight: int
    outcomes: PushOutcomes
    failures: list[PushFailure]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.push_failure import PushFailure # noqa: PLC0415
        from ..models.push_outcomes import PushOutcomes # noqa: PLC0415
        circuit: str = self.circuit

        wait_seconds = self.wait_seconds

        in_flight = self.in_flight

        outcomes = self.outcomes.to_dict()

        failures = []
        for failures_item_data in self.failures:
            failures_item = failures_item_data.to_dict()
            failures.append(failures_item)




        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "circuit": circuit,
            "wait_seconds": wait_seconds,
            "in_flight": in_flight,
            "outcomes": outcomes,
            "failures": failures,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.push_failure import PushFailure # noqa: PLC0415
        from ..models.push_outcomes import PushOutcomes # noqa: PLC0415
        d = dict(src_dict)
        circuit = check_push_state_circuit(d.pop("circuit"))




        wait_seconds = d.pop("wait_seconds")

        in_flight = d.pop("in_flight")

        outcomes = PushOutcomes.from_dict(d.pop("outcomes"))




        failures = []
        _failures = d.pop("failures")
        for failures_item_data in (_failures):
            failures_item = PushFailure.from_dict(failures_item_data)



            failures.append(failures_item)


        push_state = cls(
            circuit=circuit,
            wait_seconds=wait_seconds,
            in_flight=in_flight,
            outcomes=outcomes,
            failures=failures,
        )


        push_state.additional_properties = d
        return push_state

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
