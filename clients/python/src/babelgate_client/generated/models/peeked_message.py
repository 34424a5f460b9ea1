from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.peeked_message_envelope_type_0 import PeekedMessageEnvelopeType0
  from ..models.peeked_message_headers import PeekedMessageHeaders





T = TypeVar("T", bound="PeekedMessage")



@_attrs_define
class PeekedMessage:
    """ `envelope` is the stored body. `body_base64` replaces it when the body is not a JSON object.

        Attributes:
            headers (PeekedMessageHeaders): Native headers of the message.
            envelope (None | PeekedMessageEnvelopeType0): The stored body; `null` when it is not a JSON object.
            body_base64 (None | str): The stored body in Base64 when it is not a JSON object; else `null`.
     """

    headers: PeekedMessageHeaders
    envelope: None | PeekedMessageEnvelopeType0
    body_base64: None | str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.peeked_message_envelope_type_0 import PeekedMessageEnvelopeType0 # noqa: PLC0415
        from ..models.peeked_message_headers import PeekedMessageHeaders # noqa: PLC0415
        headers = self.headers.to_dict()

        envelope: dict[str, Any] | None
        if isinstance(self.envelope, PeekedMessageEnvelopeType0):
            envelope = self.envelope.to_dict()
        else:
            envelope = self.envelope

        body_base64: None | str
        body_base64 = self.body_base64


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "headers": headers,
            "envelope": envelope,
            "body_base64": body_base64,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.peeked_message_envelope_type_0 import PeekedMessageEnvelopeType0 # noqa: PLC0415
        from ..models.peeked_message_headers import PeekedMessageHeaders # noqa: PLC0415
        d = dict(src_dict)
        headers = PeekedMessageHeaders.from_dict(d.pop("headers"))




        def _parse_envelope(data: object) -> None | PeekedMessageEnvelopeType0:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                envelope_type_0 = PeekedMessageEnvelopeType0.from_dict(data)



                return envelope_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(None | PeekedMessageEnvelopeType0, data)

        envelope = _parse_envelope(d.pop("envelope"))


        def _parse_body_base64(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        body_base64 = _parse_body_base64(d.pop("body_base64"))


        peeked_message = cls(
            headers=headers,
            envelope=envelope,
            body_base64=body_base64,
        )


        peeked_message.additional_properties = d
        return peeked_message

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
