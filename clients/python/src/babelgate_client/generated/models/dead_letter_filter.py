from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.dead_letter_filter_reason_type_0 import check_dead_letter_filter_reason_type_0
from ..models.dead_letter_filter_reason_type_0 import DeadLetterFilterReasonType0
from ..types import UNSET, Unset
from typing import cast






T = TypeVar("T", bound="DeadLetterFilter")



@_attrs_define
class DeadLetterFilter:
    """ A dead letter matches when it meets all given conditions. Without conditions, every dead letter matches.

        Attributes:
            job (None | str | Unset): Only dead letters of this `job`.
            reason (DeadLetterFilterReasonType0 | None | Unset): Only dead letters with this reason.
            before (int | None | Unset): Dead-lettered before this time; Unix milliseconds UTC.
            after (int | None | Unset): Dead-lettered at this time or later; Unix milliseconds UTC.
            trace_id (None | str | Unset): Only dead letters with this `trace_id`.
            error (None | str | Unset): Only dead letters whose `error` is exactly this text.
     """

    job: None | str | Unset = UNSET
    reason: DeadLetterFilterReasonType0 | None | Unset = UNSET
    before: int | None | Unset = UNSET
    after: int | None | Unset = UNSET
    trace_id: None | str | Unset = UNSET
    error: None | str | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        job: None | str | Unset
        if isinstance(self.job, Unset):
            job = UNSET
        else:
            job = self.job

        reason: None | str | Unset
        if isinstance(self.reason, Unset):
            reason = UNSET
        elif isinstance(self.reason, str):
            reason = self.reason
        else:
            reason = self.reason

        before: int | None | Unset
        if isinstance(self.before, Unset):
            before = UNSET
        else:
            before = self.before

        after: int | None | Unset
        if isinstance(self.after, Unset):
            after = UNSET
        else:
            after = self.after

        trace_id: None | str | Unset
        if isinstance(self.trace_id, Unset):
            trace_id = UNSET
        else:
            trace_id = self.trace_id

        error: None | str | Unset
        if isinstance(self.error, Unset):
            error = UNSET
        else:
            error = self.error


        field_dict: dict[str, Any] = {}

        field_dict.update({
        })
        if job is not UNSET:
            field_dict["job"] = job
        if reason is not UNSET:
            field_dict["reason"] = reason
        if before is not UNSET:
            field_dict["before"] = before
        if after is not UNSET:
            field_dict["after"] = after
        if trace_id is not UNSET:
            field_dict["trace_id"] = trace_id
        if error is not UNSET:
            field_dict["error"] = error

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        def _parse_job(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        job = _parse_job(d.pop("job", UNSET))


        def _parse_reason(data: object) -> DeadLetterFilterReasonType0 | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                reason_type_0 = check_dead_letter_filter_reason_type_0(data)



                return reason_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(DeadLetterFilterReasonType0 | None | Unset, data)

        reason = _parse_reason(d.pop("reason", UNSET))


        def _parse_before(data: object) -> int | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(int | None | Unset, data)

        before = _parse_before(d.pop("before", UNSET))


        def _parse_after(data: object) -> int | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(int | None | Unset, data)

        after = _parse_after(d.pop("after", UNSET))


        def _parse_trace_id(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        trace_id = _parse_trace_id(d.pop("trace_id", UNSET))


        def _parse_error(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        error = _parse_error(d.pop("error", UNSET))


        dead_letter_filter = cls(
            job=job,
            reason=reason,
            before=before,
            after=after,
            trace_id=trace_id,
            error=error,
        )

        return dead_letter_filter

