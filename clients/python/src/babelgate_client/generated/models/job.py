from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast
import datetime

if TYPE_CHECKING:
  from ..models.job_meta import JobMeta





T = TypeVar("T", bound="Job")



@_attrs_define
class Job:
    """ A job of the Open Job Spec. The gateway converts it to an envelope, for queues of any broker, and keeps members that
    only a job has in `meta.ext.ojs`. Members that the server manages are ignored. `scheduled_at` delays the message.

        Attributes:
            type_ (str): The kind of the job.
            args (list[Any]): A single object becomes the envelope's `data`; any other list becomes `data.args`.
            specversion (str | Unset): The version of the Open Job Spec. Without it: 1.0.
            id (str | Unset): A UUID of version 7.
            queue (str | Unset): The queue of the path.
            meta (JobMeta | Unset): Facts beside the arguments.
            scheduled_at (datetime.datetime | None | Unset): Delays the message until this time.
            expires_at (datetime.datetime | None | Unset): The message expires at this time, and is not delivered after it.
     """

    type_: str
    args: list[Any]
    specversion: str | Unset = UNSET
    id: str | Unset = UNSET
    queue: str | Unset = UNSET
    meta: JobMeta | Unset = UNSET
    scheduled_at: datetime.datetime | None | Unset = UNSET
    expires_at: datetime.datetime | None | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.job_meta import JobMeta # noqa: PLC0415
        type_ = self.type_

        args = self.args



        specversion = self.specversion

        id = self.id

        queue = self.queue

        meta: dict[str, Any] | Unset = UNSET
        if not isinstance(self.meta, Unset):
            meta = self.meta.to_dict()

        scheduled_at: None | str | Unset
        if isinstance(self.scheduled_at, Unset):
            scheduled_at = UNSET
        elif isinstance(self.scheduled_at, datetime.datetime):
            scheduled_at = self.scheduled_at.isoformat()
        else:
            scheduled_at = self.scheduled_at

        expires_at: None | str | Unset
        if isinstance(self.expires_at, Unset):
            expires_at = UNSET
        elif isinstance(self.expires_at, datetime.datetime):
            expires_at = self.expires_at.isoformat()
        else:
            expires_at = self.expires_at


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "type": type_,
            "args": args,
        })
        if specversion is not UNSET:
            field_dict["specversion"] = specversion
        if id is not UNSET:
            field_dict["id"] = id
        if queue is not UNSET:
            field_dict["queue"] = queue
        if meta is not UNSET:
            field_dict["meta"] = meta
        if scheduled_at is not UNSET:
            field_dict["scheduled_at"] = scheduled_at
        if expires_at is not UNSET:
            field_dict["expires_at"] = expires_at

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.job_meta import JobMeta # noqa: PLC0415
        d = dict(src_dict)
        type_ = d.pop("type")

        args = cast(list[Any], d.pop("args"))


        specversion = d.pop("specversion", UNSET)

        id = d.pop("id", UNSET)

        queue = d.pop("queue", UNSET)

        _meta = d.pop("meta", UNSET)
        meta: JobMeta | Unset
        if isinstance(_meta,  Unset):
            meta = UNSET
        else:
            meta = JobMeta.from_dict(_meta)




        def _parse_scheduled_at(data: object) -> datetime.datetime | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                scheduled_at_type_0 = datetime.datetime.fromisoformat(data)



                return scheduled_at_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(datetime.datetime | None | Unset, data)

        scheduled_at = _parse_scheduled_at(d.pop("scheduled_at", UNSET))


        def _parse_expires_at(data: object) -> datetime.datetime | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                expires_at_type_0 = datetime.datetime.fromisoformat(data)



                return expires_at_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(datetime.datetime | None | Unset, data)

        expires_at = _parse_expires_at(d.pop("expires_at", UNSET))


        job = cls(
            type_=type_,
            args=args,
            specversion=specversion,
            id=id,
            queue=queue,
            meta=meta,
            scheduled_at=scheduled_at,
            expires_at=expires_at,
        )


        job.additional_properties = d
        return job

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
