from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast

if TYPE_CHECKING:
  from ..models.failure import Failure





T = TypeVar("T", bound="NackRequest")



@_attrs_define
class NackRequest:
    """ Messages to deliver again. Without ``delay_seconds``, the queue's backoff applies.

        Attributes:
            ack_tokens (list[str]): 1 to 1000 ack tokens of this queue.
            delay_seconds (float | None | Unset):
            error (Failure | None | Unset):
            failed (bool | Unset): False: the consumer did not attempt the messages. They are available at once, and no
                attempt is counted; `delay_seconds` and `error` must be left out. Default: true.
     """

    ack_tokens: list[str]
    delay_seconds: float | None | Unset = UNSET
    error: Failure | None | Unset = UNSET
    failed: bool | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        from ..models.failure import Failure # noqa: PLC0415
        ack_tokens = self.ack_tokens



        delay_seconds: float | None | Unset
        if isinstance(self.delay_seconds, Unset):
            delay_seconds = UNSET
        else:
            delay_seconds = self.delay_seconds

        error: dict[str, Any] | None | Unset
        if isinstance(self.error, Unset):
            error = UNSET
        elif isinstance(self.error, Failure):
            error = self.error.to_dict()
        else:
            error = self.error

        failed = self.failed


        field_dict: dict[str, Any] = {}

        field_dict.update({
            "ack_tokens": ack_tokens,
        })
        if delay_seconds is not UNSET:
            field_dict["delay_seconds"] = delay_seconds
        if error is not UNSET:
            field_dict["error"] = error
        if failed is not UNSET:
            field_dict["failed"] = failed

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.failure import Failure # noqa: PLC0415
        d = dict(src_dict)
        ack_tokens = cast(list[str], d.pop("ack_tokens"))


        def _parse_delay_seconds(data: object) -> float | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(float | None | Unset, data)

        delay_seconds = _parse_delay_seconds(d.pop("delay_seconds", UNSET))


        def _parse_error(data: object) -> Failure | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                error_type_0 = Failure.from_dict(data)



                return error_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(Failure | None | Unset, data)

        error = _parse_error(d.pop("error", UNSET))


        failed = d.pop("failed", UNSET)

        nack_request = cls(
            ack_tokens=ack_tokens,
            delay_seconds=delay_seconds,
            error=error,
            failed=failed,
        )

        return nack_request

