from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.redrive_failure import RedriveFailure





T = TypeVar("T", bound="RedriveResult")



@_attrs_define
class RedriveResult:
    """ The result of a redrive.

        Attributes:
            scanned (int): Dead letters that were read.
            matched (int): Dead letters that met the conditions.
            redriven (int): Dead letters that were sent back and removed.
            failed (int): Dead letters that could not be sent back, and unknown ids.
            complete (bool): Whether all was read, and nothing that met the conditions is left.
            errors (list[RedriveFailure]): The first 20 dead letters that could not be sent back.
            errors_omitted (int): The number of failures that `errors` does not have.
            dry_run (bool): Whether this was a dry run, which changes nothing.
     """

    scanned: int
    matched: int
    redriven: int
    failed: int
    complete: bool
    errors: list[RedriveFailure]
    errors_omitted: int
    dry_run: bool
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.redrive_failure import RedriveFailure # noqa: PLC0415
        scanned = self.scanned

        matched = self.matched

        redriven = self.redriven

        failed = self.failed

        complete = self.complete

        errors = []
        for errors_item_data in self.errors:
            errors_item = errors_item_data.to_dict()
            errors.append(errors_item)



        errors_omitted = self.errors_omitted

        dry_run = self.dry_run


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "scanned": scanned,
            "matched": matched,
            "redriven": redriven,
            "failed": failed,
            "complete": complete,
            "errors": errors,
            "errors_omitted": errors_omitted,
            "dry_run": dry_run,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.redrive_failure import RedriveFailure # noqa: PLC0415
        d = dict(src_dict)
        scanned = d.pop("scanned")

        matched = d.pop("matched")

        redriven = d.pop("redriven")

        failed = d.pop("failed")

        complete = d.pop("complete")

        errors = []
        _errors = d.pop("errors")
        for errors_item_data in (_errors):
            errors_item = RedriveFailure.from_dict(errors_item_data)



            errors.append(errors_item)


        errors_omitted = d.pop("errors_omitted")

        dry_run = d.pop("dry_run")

        redrive_result = cls(
            scanned=scanned,
            matched=matched,
            redriven=redriven,
            failed=failed,
            complete=complete,
            errors=errors,
            errors_omitted=errors_omitted,
            dry_run=dry_run,
        )


        redrive_result.additional_properties = d
        return redrive_result

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
