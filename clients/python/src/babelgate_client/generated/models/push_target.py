from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.push_target_body import check_push_target_body
from ..models.push_target_body import PushTargetBody
from typing import cast






T = TypeVar("T", bound="PushTarget")



@_attrs_define
class PushTarget:
    """ A target, without its secrets.

        Attributes:
            url (str): The URL; the values of its query are `***`.
            body (PushTargetBody): What is posted.
            max_messages (int | None): Most messages in one post, whose body is a list; `null`: one message, without a list.
            concurrency (int): Most posts at a time, of each process.
            per_second (float | None): Most posts in a second, of each process; `null`: no bound.
            timeout_seconds (float): Seconds for a post.
            reject_statuses (list[int]): Statuses of answers with which a message is dead-lettered at once.
            headers (list[str]): The names of the additional headers.
            secrets (int): How many secrets sign each post.
     """

    url: str
    body: PushTargetBody
    max_messages: int | None
    concurrency: int
    per_second: float | None
    timeout_seconds: float
    reject_statuses: list[int]
    headers: list[str]
    secrets: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        url = self.url

        body: str = self.body

        max_messages: int | None
        max_messages = self.max_messages

        concurrency = self.concurrency

        per_second: float | None
        per_second = self.per_second

        timeout_seconds = self.timeout_seconds

        reject_statuses = self.reject_statuses



        headers = self.headers



        secrets = self.secrets


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "url": url,
            "body": body,
            "max_messages": max_messages,
            "concurrency": concurrency,
            "per_second": per_second,
            "timeout_seconds": timeout_seconds,
            "reject_statuses": reject_statuses,
            "headers": headers,
            "secrets": secrets,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        url = d.pop("url")

        body = check_push_target_body(d.pop("body"))




        def _parse_max_messages(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        max_messages = _parse_max_messages(d.pop("max_messages"))


        concurrency = d.pop("concurrency")

        def _parse_per_second(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        per_second = _parse_per_second(d.pop("per_second"))


        timeout_seconds = d.pop("timeout_seconds")

        reject_statuses = cast(list[int], d.pop("reject_statuses"))


        headers = cast(list[str], d.pop("headers"))


        secrets = d.pop("secrets")

        push_target = cls(
            url=url,
            body=body,
            max_messages=max_messages,
            concurrency=concurrency,
            per_second=per_second,
            timeout_seconds=timeout_seconds,
            reject_statuses=reject_statuses,
            headers=headers,
            secrets=secrets,
        )


        push_target.additional_properties = d
        return push_target

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
