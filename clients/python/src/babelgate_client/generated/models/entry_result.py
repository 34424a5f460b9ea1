from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast

if TYPE_CHECKING:
  from ..models.defect import Defect





T = TypeVar("T", bound="EntryResult")



@_attrs_define
class EntryResult:
    """ The result of one entry of a batch: ``id`` and ``trace_id`` when it was accepted, else its error.

        Attributes:
            index (int): The position of the entry in the batch, from 0.
            status (int): The HTTP status of this entry on its own.
            id (None | str | Unset): The `meta.id` of the accepted message.
            trace_id (None | str | Unset): The `trace_id` of the accepted message.
            code (None | str | Unset): For a failure: its stable code, for programs.
            detail (None | str | Unset): For a failure: a sentence for people.
            retryable (bool | None | Unset): For a failure: whether the same request may succeed later.
            errors (list[Defect] | None | Unset): For a failure: each defect of the entry.
            replayed (bool | None | Unset): True: an earlier request with this idempotency key was answered; nothing was
                written now.
     """

    index: int
    status: int
    id: None | str | Unset = UNSET
    trace_id: None | str | Unset = UNSET
    code: None | str | Unset = UNSET
    detail: None | str | Unset = UNSET
    retryable: bool | None | Unset = UNSET
    errors: list[Defect] | None | Unset = UNSET
    replayed: bool | None | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.defect import Defect # noqa: PLC0415
        index = self.index

        status = self.status

        id: None | str | Unset
        if isinstance(self.id, Unset):
            id = UNSET
        else:
            id = self.id

        trace_id: None | str | Unset
        if isinstance(self.trace_id, Unset):
            trace_id = UNSET
        else:
            trace_id = self.trace_id

        code: None | str | Unset
        if isinstance(self.code, Unset):
            code = UNSET
        else:
            code = self.code

        detail: None | str | Unset
        if isinstance(self.detail, Unset):
            detail = UNSET
        else:
            detail = self.detail

        retryable: bool | None | Unset
        if isinstance(self.retryable, Unset):
            retryable = UNSET
        else:
            retryable = self.retryable

        errors: list[dict[str, Any]] | None | Unset
        if isinstance(self.errors, Unset):
            errors = UNSET
        elif isinstance(self.errors, list):
            errors = []
            for errors_type_0_item_data in self.errors:
                errors_type_0_item = errors_type_0_item_data.to_dict()
                errors.append(errors_type_0_item)


        else:
            errors = self.errors

        replayed: bool | None | Unset
        if isinstance(self.replayed, Unset):
            replayed = UNSET
        else:
            replayed = self.replayed


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "index": index,
            "status": status,
        })
        if id is not UNSET:
            field_dict["id"] = id
        if trace_id is not UNSET:
            field_dict["trace_id"] = trace_id
        if code is not UNSET:
            field_dict["code"] = code
        if detail is not UNSET:
            field_dict["detail"] = detail
        if retryable is not UNSET:
            field_dict["retryable"] = retryable
        if errors is not UNSET:
            field_dict["errors"] = errors
        if replayed is not UNSET:
            field_dict["replayed"] = replayed

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.defect import Defect # noqa: PLC0415
        d = dict(src_dict)
        index = d.pop("index")

        status = d.pop("status")

        def _parse_id(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        id = _parse_id(d.pop("id", UNSET))


        def _parse_trace_id(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        trace_id = _parse_trace_id(d.pop("trace_id", UNSET))


        def _parse_code(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        code = _parse_code(d.pop("code", UNSET))


        def _parse_detail(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        detail = _parse_detail(d.pop("detail", UNSET))


        def _parse_retryable(data: object) -> bool | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(bool | None | Unset, data)

        retryable = _parse_retryable(d.pop("retryable", UNSET))


        def _parse_errors(data: object) -> list[Defect] | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, list):
                    raise TypeError()
                errors_type_0 = []
                _errors_type_0 = data
                for errors_type_0_item_data in (_errors_type_0):
                    errors_type_0_item = Defect.from_dict(errors_type_0_item_data)



                    errors_type_0.append(errors_type_0_item)

                return errors_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(list[Defect] | None | Unset, data)

        errors = _parse_errors(d.pop("errors", UNSET))


        def _parse_replayed(data: object) -> bool | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(bool | None | Unset, data)

        replayed = _parse_replayed(d.pop("replayed", UNSET))


        entry_result = cls(
            index=index,
            status=status,
            id=id,
            trace_id=trace_id,
            code=code,
            detail=detail,
            retryable=retryable,
            errors=errors,
            replayed=replayed,
        )


        entry_result.additional_properties = d
        return entry_result

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
