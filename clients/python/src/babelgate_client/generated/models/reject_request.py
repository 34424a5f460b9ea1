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





T = TypeVar("T", bound="RejectRequest")



@_attrs_define
class RejectRequest:
    """ Messages to dead-letter immediately.

        Attributes:
            ack_tokens (list[str]): 1 to 1000 ack tokens of this queue.
            error (Failure | None | Unset):
     """

    ack_tokens: list[str]
    error: Failure | None | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        from ..models.failure import Failure # noqa: PLC0415
        ack_tokens = self.ack_tokens



        error: dict[str, Any] | None | Unset
        if isinstance(self.error, Unset):
            error = UNSET
        elif isinstance(self.error, Failure):
            error = self.error.to_dict()
        else:
            error = self.error


        field_dict: dict[str, Any] = {}

        field_dict.update({
            "ack_tokens": ack_tokens,
        })
        if error is not UNSET:
            field_dict["error"] = error

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.failure import Failure # noqa: PLC0415
        d = dict(src_dict)
        ack_tokens = cast(list[str], d.pop("ack_tokens"))


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


        reject_request = cls(
            ack_tokens=ack_tokens,
            error=error,
        )

        return reject_request

