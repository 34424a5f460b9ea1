from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.token_result import TokenResult





T = TypeVar("T", bound="SettleOutcome")



@_attrs_define
class SettleOutcome:
    """ One result per token.

        Attributes:
            settled (int): The number of tokens that were settled.
            failed (int): The number of tokens that failed.
            results (list[TokenResult]): The results, by action and in the order of the tokens.
     """

    settled: int
    failed: int
    results: list[TokenResult]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.token_result import TokenResult # noqa: PLC0415
        settled = self.settled

        failed = self.failed

        results = []
        for results_item_data in self.results:
            results_item = results_item_data.to_dict()
            results.append(results_item)




        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "settled": settled,
            "failed": failed,
            "results": results,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.token_result import TokenResult # noqa: PLC0415
        d = dict(src_dict)
        settled = d.pop("settled")

        failed = d.pop("failed")

        results = []
        _results = d.pop("results")
        for results_item_data in (_results):
            results_item = TokenResult.from_dict(results_item_data)



            results.append(results_item)


        settle_outcome = cls(
            settled=settled,
            failed=failed,
            results=results,
        )


        settle_outcome.additional_properties = d
        return settle_outcome

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
