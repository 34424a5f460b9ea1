from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.push_request_body import check_push_request_body
from ..models.push_request_body import PushRequestBody
from ..types import UNSET, Unset
from typing import cast

if TYPE_CHECKING:
  from ..models.push_request_headers import PushRequestHeaders





T = TypeVar("T", bound="PushRequest")



@_attrs_define
class PushRequest:
    """ Where the messages of the queue are pushed to, as `push` in a route of the configuration.

        Attributes:
            url (str): The URL of the webhook that each message is posted to: `https://…`.
            secrets (list[str]): Secrets of [Standard Webhooks](https://www.standardwebhooks.com), `whsec_…`. Each signs
                every post, so that a receiver can change from one to the next.
            body (PushRequestBody | Unset): What is posted: the `envelope`, its `data`, a structured event (`cloudevents`),
                or a binary one (`cloudevents_binary`).
            max_messages (int | None | Unset): Most messages in one post, whose body is then a list. None: one message,
                without a list. Not in the binary mode.
            concurrency (int | Unset): Most posts at a time, of each process. 1 keeps the order of the queue. Default: 10.
            per_second (float | None | Unset): Most posts in a second, of each process. None: no bound.
            timeout_seconds (float | Unset): Seconds for a post, from connecting to the head of the answer: at most 3,600.
                The lease is extended meanwhile. Default: 30.0.
            reject_statuses (list[int] | Unset): Statuses of answers with which a message is dead-lettered at once.
            headers (PushRequestHeaders | Unset): More headers of each post, such as `authorization`.
     """

    url: str
    secrets: list[str]
    body: PushRequestBody | Unset = UNSET
    max_messages: int | None | Unset = UNSET
    concurrency: int | Unset = UNSET
    per_second: float | None | Unset = UNSET
    timeout_seconds: float | Unset = UNSET
    reject_statuses: list[int] | Unset = UNSET
    headers: PushRequestHeaders | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        from ..models.push_request_headers import PushRequestHeaders # noqa: PLC0415
        url = self.url

        secrets = self.secrets



        body: str | Unset = UNSET
        if not isinstance(self.body, Unset):
            body = self.body


        max_messages: int | None | Unset
        if isinstance(self.max_messages, Unset):
            max_messages = UNSET
        else:
            max_messages = self.max_messages

        concurrency = self.concurrency

        per_second: float | None | Unset
        if isinstance(self.per_second, Unset):
            per_second = UNSET
        else:
            per_second = self.per_second

        timeout_seconds = self.timeout_seconds

        reject_statuses: list[int] | Unset = UNSET
        if not isinstance(self.reject_statuses, Unset):
            reject_statuses = self.reject_statuses



        headers: dict[str, Any] | Unset = UNSET
        if not isinstance(self.headers, Unset):
            headers = self.headers.to_dict()


        field_dict: dict[str, Any] = {}

        field_dict.update({
            "url": url,
            "secrets": secrets,
        })
        if body is not UNSET:
            field_dict["body"] = body
        if max_messages is not UNSET:
            field_dict["max_messages"] = max_messages
        if concurrency is not UNSET:
            field_dict["concurrency"] = concurrency
        if per_second is not UNSET:
            field_dict["per_second"] = per_second
        if timeout_seconds is not UNSET:
            field_dict["timeout_seconds"] = timeout_seconds
        if reject_statuses is not UNSET:
            field_dict["reject_statuses"] = reject_statuses
        if headers is not UNSET:
            field_dict["headers"] = headers

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.push_request_headers import PushRequestHeaders # noqa: PLC0415
        d = dict(src_dict)
        url = d.pop("url")

        secrets = cast(list[str], d.pop("secrets"))


        _body = d.pop("body", UNSET)
        body: PushRequestBody | Unset
        if isinstance(_body,  Unset):
            body = UNSET
        else:
            body = check_push_request_body(_body)




        def _parse_max_messages(data: object) -> int | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(int | None | Unset, data)

        max_messages = _parse_max_messages(d.pop("max_messages", UNSET))


        concurrency = d.pop("concurrency", UNSET)

        def _parse_per_second(data: object) -> float | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(float | None | Unset, data)

        per_second = _parse_per_second(d.pop("per_second", UNSET))


        timeout_seconds = d.pop("timeout_seconds", UNSET)

        reject_statuses = cast(list[int], d.pop("reject_statuses", UNSET))


        _headers = d.pop("headers", UNSET)
        headers: PushRequestHeaders | Unset
        if isinstance(_headers,  Unset):
            headers = UNSET
        else:
            headers = PushRequestHeaders.from_dict(_headers)




        push_request = cls(
            url=url,
            secrets=secrets,
            body=body,
            max_messages=max_messages,
            concurrency=concurrency,
            per_second=per_second,
            timeout_seconds=timeout_seconds,
            reject_statuses=reject_statuses,
            headers=headers,
        )

        return push_request

