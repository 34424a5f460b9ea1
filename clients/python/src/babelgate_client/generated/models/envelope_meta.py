from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.envelope_meta_lang import check_envelope_meta_lang
from ..models.envelope_meta_lang import EnvelopeMetaLang
from typing import cast
from typing import Literal, cast






T = TypeVar("T", bound="EnvelopeMeta")



@_attrs_define
class EnvelopeMeta:
    """ The facts of a message that its producer has recorded.

        Attributes:
            id (str): Identifies the message: 1 to 128 printable ASCII characters, by convention a UUID.
            queue (str): The queue of the path.
            lang (EnvelopeMetaLang): The language of the producer.
            schema_version (Literal[1]): The version of the envelope's schema.
            created_at (int): Unix milliseconds UTC.
     """

    id: str
    queue: str
    lang: EnvelopeMetaLang
    schema_version: Literal[1]
    created_at: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        id = self.id

        queue = self.queue

        lang: str = self.lang

        schema_version = self.schema_version

        created_at = self.created_at


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "id": id,
            "queue": queue,
            "lang": lang,
            "schema_version": schema_version,
            "created_at": created_at,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        id = d.pop("id")

        queue = d.pop("queue")

        lang = check_envelope_meta_lang(d.pop("lang"))




        schema_version = cast(Literal[1] , d.pop("schema_version"))
        if schema_version != 1:
            raise ValueError(f"schema_version must match const 1, got '{schema_version}'")

        created_at = d.pop("created_at")

        envelope_meta = cls(
            id=id,
            queue=queue,
            lang=lang,
            schema_version=schema_version,
            created_at=created_at,
        )


        envelope_meta.additional_properties = d
        return envelope_meta

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
