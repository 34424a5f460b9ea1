from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.envelope_data import EnvelopeData
  from ..models.envelope_meta import EnvelopeMeta





T = TypeVar("T", bound="Envelope")



@_attrs_define
class Envelope:
    """ A BabelQueue envelope.

        Attributes:
            job (str): The kind of the message, as a URN.
            trace_id (str): By convention a UUID.
            data (EnvelopeData): The payload; key order and number literals are preserved.
            meta (EnvelopeMeta): The facts of a message that its producer has recorded.
            attempts (int): The number of earlier deliveries that ended without an ack.
     """

    job: str
    trace_id: str
    data: EnvelopeData
    meta: EnvelopeMeta
    attempts: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.envelope_data import EnvelopeData # noqa: PLC0415
        from ..models.envelope_meta import EnvelopeMeta # noqa: PLC0415
        job = self.job

        trace_id = self.trace_id

        data = self.data.to_dict()

        meta = self.meta.to_dict()

        attempts = self.attempts


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "job": job,
            "trace_id": trace_id,
            "data": data,
            "meta": meta,
            "attempts": attempts,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.envelope_data import EnvelopeData # noqa: PLC0415
        from ..models.envelope_meta import EnvelopeMeta # noqa: PLC0415
        d = dict(src_dict)
        job = d.pop("job")

        trace_id = d.pop("trace_id")

        data = EnvelopeData.from_dict(d.pop("data"))




        meta = EnvelopeMeta.from_dict(d.pop("meta"))




        attempts = d.pop("attempts")

        envelope = cls(
            job=job,
            trace_id=trace_id,
            data=data,
            meta=meta,
            attempts=attempts,
        )


        envelope.additional_properties = d
        return envelope

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
