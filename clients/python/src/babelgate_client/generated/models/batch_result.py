from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast

if TYPE_CHECKING:
  from ..models.batch_result_omitted import BatchResultOmitted
  from ..models.entry_result import EntryResult





T = TypeVar("T", bound="BatchResult")



@_attrs_define
class BatchResult:
    """ One result per entry, in order. At most 10,000 failed entries have a result; the first 100 of these have ``detail``
    and ``errors``.

        Attributes:
            accepted (int): The number of accepted entries.
            failed (int): The number of failed entries.
            results (list[EntryResult]): The results, in the order of the entries.
            omitted (BatchResultOmitted | Unset): The number of entries without a result, by code or `accepted`.
     """

    accepted: int
    failed: int
    results: list[EntryResult]
    omitted: BatchResultOmitted | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.batch_result_omitted import BatchResultOmitted # noqa: PLC0415
        from ..models.entry_result import EntryResult # noqa: PLC0415
        accepted = self.accepted

        failed = self.failed

        results = []
        for results_item_data in self.results:
            results_item = results_item_data.to_dict()
            results.append(results_item)



        omitted: dict[str, Any] | Unset = UNSET
        if not isinstance(self.omitted, Unset):
            omitted = self.omitted.to_dict()


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "accepted": accepted,
            "failed": failed,
            "results": results,
        })
        if omitted is not UNSET:
            field_dict["omitted"] = omitted

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.batch_result_omitted import BatchResultOmitted # noqa: PLC0415
        from ..models.entry_result import EntryResult # noqa: PLC0415
        d = dict(src_dict)
        accepted = d.pop("accepted")

        failed = d.pop("failed")

        results = []
        _results = d.pop("results")
        for results_item_data in (_results):
            results_item = EntryResult.from_dict(results_item_data)



            results.append(results_item)


        _omitted = d.pop("omitted", UNSET)
        omitted: BatchResultOmitted | Unset
        if isinstance(_omitted,  Unset):
            omitted = UNSET
        else:
            omitted = BatchResultOmitted.from_dict(_omitted)




        batch_result = cls(
            accepted=accepted,
            failed=failed,
            results=results,
            omitted=omitted,
        )


        batch_result.additional_properties = d
        return batch_result

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
