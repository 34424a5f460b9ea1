from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast

if TYPE_CHECKING:
  from ..models.received_envelope_data import ReceivedEnvelopeData
  from ..models.received_envelope_meta import ReceivedEnvelopeMeta





T = TypeVar("T", bound="ReceivedEnvelope")



@_attrs_define
class ReceivedEnvelope:
    """ The envelope as stored on the queue. This gateway writes all members of `Envelope`; another program may omit
    optional members, or write `urn` instead of `job`.

        Attributes:
            trace_id (str): By convention a UUID.
            data (ReceivedEnvelopeData): The payload, as it was published.
            meta (ReceivedEnvelopeMeta): `meta` as stored on the queue. Another program may omit all members but
                `schema_version`.
            attempts (int): The `attempts` of the delivery takes precedence.
            job (None | str | Unset): The kind of the message, as a URN.
     """

    trace_id: str
    data: ReceivedEnvelopeData
    meta: ReceivedEnvelopeMeta
    attempts: int
    job: None | str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.received_envelope_data import ReceivedEnvelopeData # noqa: PLC0415
        from ..models.received_envelope_meta import ReceivedEnvelopeMeta # noqa: PLC0415
        trace_id = self.trace_id

        data = self.data.to_dict()

        meta = self.meta.to_dict()

        attempts = self.attempts

        job: None | str | Unset
        if isinstance(self.job, Unset):
            job = UNSET
        else:
            job = self.job


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "trace_id": trace_id,
            "data": data,
            "meta": meta,
            "attempts": attempts,
        })
        if job is not UNSET:
            field_dict["job"] = job

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.received_envelope_data import ReceivedEnvelopeData # noqa: PLC0415
        from ..models.received_envelope_meta import ReceivedEnvelopeMeta # noqa: PLC0415
        d = dict(src_dict)
        trace_id = d.pop("trace_id")

        data = ReceivedEnvelopeData.from_dict(d.pop("data"))




        meta = ReceivedEnvelopeMeta.from_dict(d.pop("meta"))




        attempts = d.pop("attempts")

        def _parse_job(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        job = _parse_job(d.pop("job", UNSET))


        received_envelope = cls(
            trace_id=trace_id,
            data=data,
            meta=meta,
            attempts=attempts,
            job=job,
        )


        received_envelope.additional_properties = d
        return received_envelope

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
