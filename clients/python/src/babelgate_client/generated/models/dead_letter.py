from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.dead_letter_headers import DeadLetterHeaders
  from ..models.dead_letter_record_type_0 import DeadLetterRecordType0





T = TypeVar("T", bound="DeadLetter")



@_attrs_define
class DeadLetter:
    """ `record` is the stored record. `record_base64` replaces it when the record is not a JSON object.

        Attributes:
            letter_id (str): Identifies the dead letter in its queue: a digest of its record, so records with equal bytes
                share it. Operations apply to the oldest of these.
            id (None | str): The `meta.id` of the message; `null` when its body has none.
            job (None | str): The `job` of the message; `null` when its body has none.
            trace_id (None | str): The `trace_id` of the message; `null` when its body has none.
            reason (None | str): Why the message was dead-lettered, such as `failed` or `poison`.
            error (None | str): The error that the consumer or the gateway gave.
            failed_at (int | None): When the message was dead-lettered; Unix milliseconds UTC.
            attempts (int | None): Failed deliveries before it was dead-lettered.
            headers (DeadLetterHeaders): Native headers of the message.
            record (DeadLetterRecordType0 | None): The stored record; `null` when it is not a JSON object.
            record_base64 (None | str): The stored record in Base64 when it is not a JSON object; else `null`.
     """

    letter_id: str
    id: None | str
    job: None | str
    trace_id: None | str
    reason: None | str
    error: None | str
    failed_at: int | None
    attempts: int | None
    headers: DeadLetterHeaders
    record: DeadLetterRecordType0 | None
    record_base64: None | str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.dead_letter_headers import DeadLetterHeaders # noqa: PLC0415
        from ..models.dead_letter_record_type_0 import DeadLetterRecordType0 # noqa: PLC0415
        letter_id = self.letter_id

        id: None | str
        id = self.id

        job: None | str
        job = self.job

        trace_id: None | str
        trace_id = self.trace_id

        reason: None | str
        reason = self.reason

        error: None | str
        error = self.error

        failed_at: int | None
        failed_at = self.failed_at

        attempts: int | None
        attempts = self.attempts

        headers = self.headers.to_dict()

        record: dict[str, Any] | None
        if isinstance(self.record, DeadLetterRecordType0):
            record = self.record.to_dict()
        else:
            record = self.record

        record_base64: None | str
        record_base64 = self.record_base64


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "letter_id": letter_id,
            "id": id,
            "job": job,
            "trace_id": trace_id,
            "reason": reason,
            "error": error,
            "failed_at": failed_at,
            "attempts": attempts,
            "headers": headers,
            "record": record,
            "record_base64": record_base64,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.dead_letter_headers import DeadLetterHeaders # noqa: PLC0415
        from ..models.dead_letter_record_type_0 import DeadLetterRecordType0 # noqa: PLC0415
        d = dict(src_dict)
        letter_id = d.pop("letter_id")

        def _parse_id(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        id = _parse_id(d.pop("id"))


        def _parse_job(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        job = _parse_job(d.pop("job"))


        def _parse_trace_id(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        trace_id = _parse_trace_id(d.pop("trace_id"))


        def _parse_reason(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        reason = _parse_reason(d.pop("reason"))


        def _parse_error(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        error = _parse_error(d.pop("error"))


        def _parse_failed_at(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        failed_at = _parse_failed_at(d.pop("failed_at"))


        def _parse_attempts(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        attempts = _parse_attempts(d.pop("attempts"))


        headers = DeadLetterHeaders.from_dict(d.pop("headers"))




        def _parse_record(data: object) -> DeadLetterRecordType0 | None:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                record_type_0 = DeadLetterRecordType0.from_dict(data)



                return record_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(DeadLetterRecordType0 | None, data)

        record = _parse_record(d.pop("record"))


        def _parse_record_base64(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        record_base64 = _parse_record_base64(d.pop("record_base64"))


        dead_letter = cls(
            letter_id=letter_id,
            id=id,
            job=job,
            trace_id=trace_id,
            reason=reason,
            error=error,
            failed_at=failed_at,
            attempts=attempts,
            headers=headers,
            record=record,
            record_base64=record_base64,
        )


        dead_letter.additional_properties = d
        return dead_letter

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
