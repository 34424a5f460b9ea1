from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast
from typing import Literal, cast
import datetime






T = TypeVar("T", bound="CloudEvent")



@_attrs_define
class CloudEvent:
    """ An event of CloudEvents 1.0 in the JSON format. The gateway converts it to an envelope, for queues of any broker:
    `type` is the job, `id` is `meta.id`, and attributes that only an event has are in `meta.ext.cloudevents`. Any other
    member is an extension attribute: a string, a boolean or an integer of 32 bits.

        Attributes:
            specversion (Literal['1.0']): The version of CloudEvents.
            id (str): Identifies the event together with its source.
            source (str): A URI reference of where the event happened.
            type_ (str): The kind of the event.
            subject (str | Unset): What in the source the event is about.
            time (datetime.datetime | Unset): When it happened.
            datacontenttype (str | Unset): The media type of the data. Without it: JSON.
            dataschema (str | Unset): A URI of the schema of the data.
            data (Any | Unset): The data: any JSON value.
            data_base64 (str | Unset): The data in base64, instead of `data`.
     """

    specversion: Literal['1.0']
    id: str
    source: str
    type_: str
    subject: str | Unset = UNSET
    time: datetime.datetime | Unset = UNSET
    datacontenttype: str | Unset = UNSET
    dataschema: str | Unset = UNSET
    data: Any | Unset = UNSET
    data_base64: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        specversion = self.specversion

        id = self.id

        source = self.source

        type_ = self.type_

        subject = self.subject

        time: str | Unset = UNSET
        if not isinstance(self.time, Unset):
            time = self.time.isoformat()

        datacontenttype = self.datacontenttype

        dataschema = self.dataschema

        data = self.data

        data_base64 = self.data_base64


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "specversion": specversion,
            "id": id,
            "source": source,
            "type": type_,
        })
        if subject is not UNSET:
            field_dict["subject"] = subject
        if time is not UNSET:
            field_dict["time"] = time
        if datacontenttype is not UNSET:
            field_dict["datacontenttype"] = datacontenttype
        if dataschema is not UNSET:
            field_dict["dataschema"] = dataschema
        if data is not UNSET:
            field_dict["data"] = data
        if data_base64 is not UNSET:
            field_dict["data_base64"] = data_base64

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        specversion = cast(Literal['1.0'] , d.pop("specversion"))
        if specversion != '1.0':
            raise ValueError(f"specversion must match const '1.0', got '{specversion}'")

        id = d.pop("id")

        source = d.pop("source")

        type_ = d.pop("type")

        subject = d.pop("subject", UNSET)

        _time = d.pop("time", UNSET)
        time: datetime.datetime | Unset
        if isinstance(_time,  Unset):
            time = UNSET
        else:
            time = datetime.datetime.fromisoformat(_time)




        datacontenttype = d.pop("datacontenttype", UNSET)

        dataschema = d.pop("dataschema", UNSET)

        data = d.pop("data", UNSET)

        data_base64 = d.pop("data_base64", UNSET)

        cloud_event = cls(
            specversion=specversion,
            id=id,
            source=source,
            type_=type_,
            subject=subject,
            time=time,
            datacontenttype=datacontenttype,
            dataschema=dataschema,
            data=data,
            data_base64=data_base64,
        )


        cloud_event.additional_properties = d
        return cloud_event

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
