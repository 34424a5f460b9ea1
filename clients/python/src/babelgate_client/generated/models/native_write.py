from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.native_write_fields import NativeWriteFields
  from ..models.native_write_headers import NativeWriteHeaders
  from ..models.native_write_target import NativeWriteTarget





T = TypeVar("T", bound="NativeWrite")



@_attrs_define
class NativeWrite:
    """ One write of a publish, in the words of the broker. Programs that share the queue find exactly this.

        Attributes:
            operation (str): The command or statement.
            target (NativeWriteTarget): Where it writes, such as an exchange and a routing key, a key or a table.
            fields (NativeWriteFields): The native values beside body and headers, such as the properties of a message or
                the other columns of a row, in the broker's own names and units.
            headers (NativeWriteHeaders): The native headers, with their types.
            body (None | str): The bytes as stored, as text. `null`: none, or not UTF-8.
            body_base64 (None | str): The bytes as stored, where they are not UTF-8.
            assigned (list[str]): The fields and headers that get their value when the message is written, such as the id of
                a row or the time. The value shown is an example.
     """

    operation: str
    target: NativeWriteTarget
    fields: NativeWriteFields
    headers: NativeWriteHeaders
    body: None | str
    body_base64: None | str
    assigned: list[str]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.native_write_fields import NativeWriteFields # noqa: PLC0415
        from ..models.native_write_headers import NativeWriteHeaders # noqa: PLC0415
        from ..models.native_write_target import NativeWriteTarget # noqa: PLC0415
        operation = self.operation

        target = self.target.to_dict()

        fields = self.fields.to_dict()

        headers = self.headers.to_dict()

        body: None | str
        body = self.body

        body_base64: None | str
        body_base64 = self.body_base64

        assigned = self.assigned




        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "operation": operation,
            "target": target,
            "fields": fields,
            "headers": headers,
            "body": body,
            "body_base64": body_base64,
            "assigned": assigned,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.native_write_fields import NativeWriteFields # noqa: PLC0415
        from ..models.native_write_headers import NativeWriteHeaders # noqa: PLC0415
        from ..models.native_write_target import NativeWriteTarget # noqa: PLC0415
        d = dict(src_dict)
        operation = d.pop("operation")

        target = NativeWriteTarget.from_dict(d.pop("target"))




        fields = NativeWriteFields.from_dict(d.pop("fields"))




        headers = NativeWriteHeaders.from_dict(d.pop("headers"))




        def _parse_body(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        body = _parse_body(d.pop("body"))


        def _parse_body_base64(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        body_base64 = _parse_body_base64(d.pop("body_base64"))


        assigned = cast(list[str], d.pop("assigned"))


        native_write = cls(
            operation=operation,
            target=target,
            fields=fields,
            headers=headers,
            body=body,
            body_base64=body_base64,
            assigned=assigned,
        )


        native_write.additional_properties = d
        return native_write

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
