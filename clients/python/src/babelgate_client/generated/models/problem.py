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





T = TypeVar("T", bound="Problem")



@_attrs_define
class Problem:
    """ RFC 9457 problem details. `errors` lists the defects of the request; `trace_id` is the envelope's.

        Attributes:
            type_ (str): `urn:babelgate:problem:` and the code.
            title (str): The kind of problem in a few words; the same for each problem of a code.
            status (int): The HTTP status.
            detail (str): What went wrong this time, in sentences for people.
            instance (str): The path of the request; empty when it could not be read.
            code (str): Stable code, for programs.
            retryable (bool): Whether the same request may succeed later.
            trace_id (None | str): The `trace_id` of the message, when it is known.
            errors (list[Defect]): Each defect of the request; empty when the problem has no place in the request.
            actual (int | str | Unset): With 413: the size that was sent.
            limit (int | Unset): With 413: the limit.
            maximum (float | Unset): With 422: the maximum of the broker.
            scanned (int | Unset): With `dead_letter_not_reached`: the dead letters that were read.
            next_cursor (str | Unset): With `dead_letter_not_reached`: the `cursor` with which the search goes on.
     """

    type_: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    retryable: bool
    trace_id: None | str
    errors: list[Defect]
    actual: int | str | Unset = UNSET
    limit: int | Unset = UNSET
    maximum: float | Unset = UNSET
    scanned: int | Unset = UNSET
    next_cursor: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.defect import Defect # noqa: PLC0415
        type_ = self.type_

        title = self.title

        status = self.status

        detail = self.detail

        instance = self.instance

        code = self.code

        retryable = self.retryable

        trace_id: None | str
        trace_id = self.trace_id

        errors = []
        for errors_item_data in self.errors:
            errors_item = errors_item_data.to_dict()
            errors.append(errors_item)



        actual: int | str | Unset
        if isinstance(self.actual, Unset):
            actual = UNSET
        else:
            actual = self.actual

        limit = self.limit

        maximum = self.maximum

        scanned = self.scanned

        next_cursor = self.next_cursor


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "type": type_,
            "title": title,
            "status": status,
            "detail": detail,
            "instance": instance,
            "code": code,
            "retryable": retryable,
            "trace_id": trace_id,
            "errors": errors,
        })
        if actual is not UNSET:
            field_dict["actual"] = actual
        if limit is not UNSET:
            field_dict["limit"] = limit
        if maximum is not UNSET:
            field_dict["maximum"] = maximum
        if scanned is not UNSET:
            field_dict["scanned"] = scanned
        if next_cursor is not UNSET:
            field_dict["next_cursor"] = next_cursor

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.defect import Defect # noqa: PLC0415
        d = dict(src_dict)
        type_ = d.pop("type")

        title = d.pop("title")

        status = d.pop("status")

        detail = d.pop("detail")

        instance = d.pop("instance")

        code = d.pop("code")

        retryable = d.pop("retryable")

        def _parse_trace_id(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        trace_id = _parse_trace_id(d.pop("trace_id"))


        errors = []
        _errors = d.pop("errors")
        for errors_item_data in (_errors):
            errors_item = Defect.from_dict(errors_item_data)



            errors.append(errors_item)


        def _parse_actual(data: object) -> int | str | Unset:
            if isinstance(data, Unset):
                return data
            return cast(int | str | Unset, data)

        actual = _parse_actual(d.pop("actual", UNSET))


        limit = d.pop("limit", UNSET)

        maximum = d.pop("maximum", UNSET)

        scanned = d.pop("scanned", UNSET)

        next_cursor = d.pop("next_cursor", UNSET)

        problem = cls(
            type_=type_,
            title=title,
            status=status,
            detail=detail,
            instance=instance,
            code=code,
            retryable=retryable,
            trace_id=trace_id,
            errors=errors,
            actual=actual,
            limit=limit,
            maximum=maximum,
            scanned=scanned,
            next_cursor=next_cursor,
        )


        problem.additional_properties = d
        return problem

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
