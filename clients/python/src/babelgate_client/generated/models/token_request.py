from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast

if TYPE_CHECKING:
  from ..models.page_request import PageRequest
  from ..models.token_request_rights import TokenRequestRights





T = TypeVar("T", bound="TokenRequest")



@_attrs_define
class TokenRequest:
    """ A token to be made. It needs one of `ttl_seconds` and `ends_at`.

        Attributes:
            name (str): The name of the holder, for logs: 1 to 120 of `A-Z a-z 0-9 . _ -`. No other valid token has it.
            rights (TokenRequestRights): For each name or pattern of queues: `send`, `listen`, `manage`, `observe`. You need
                `manage` and each of these rights on all these queues.
            ttl_seconds (float | None | Unset): Seconds from now to its end, at most `auth.made_tokens.max_ttl_seconds`; may
                be decimal. Without it: `ends_at` counts.
            ends_at (int | None | Unset): Its end, Unix milliseconds UTC.
            page (None | PageRequest | Unset): The token is part of a web page, and can only publish, within these bounds;
                `rights` must be `send` alone. Without it: an ordinary token.
     """

    name: str
    rights: TokenRequestRights
    ttl_seconds: float | None | Unset = UNSET
    ends_at: int | None | Unset = UNSET
    page: None | PageRequest | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        from ..models.page_request import PageRequest # noqa: PLC0415
        from ..models.token_request_rights import TokenRequestRights # noqa: PLC0415
        name = self.name

        rights = self.rights.to_dict()

        ttl_seconds: float | None | Unset
        if isinstance(self.ttl_seconds, Unset):
            ttl_seconds = UNSET
        else:
            ttl_seconds = self.ttl_seconds

        ends_at: int | None | Unset
        if isinstance(self.ends_at, Unset):
            ends_at = UNSET
        else:
            ends_at = self.ends_at

        page: dict[str, Any] | None | Unset
        if isinstance(self.page, Unset):
            page = UNSET
        elif isinstance(self.page, PageRequest):
            page = self.page.to_dict()
        else:
            page = self.page


        field_dict: dict[str, Any] = {}

        field_dict.update({
            "name": name,
            "rights": rights,
        })
        if ttl_seconds is not UNSET:
            field_dict["ttl_seconds"] = ttl_seconds
        if ends_at is not UNSET:
            field_dict["ends_at"] = ends_at
        if page is not UNSET:
            field_dict["page"] = page

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.page_request import PageRequest # noqa: PLC0415
        from ..models.token_request_rights import TokenRequestRights # noqa: PLC0415
        d = dict(src_dict)
        name = d.pop("name")

        rights = TokenRequestRights.from_dict(d.pop("rights"))




        def _parse_ttl_seconds(data: object) -> float | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(float | None | Unset, data)

        ttl_seconds = _parse_ttl_seconds(d.pop("ttl_seconds", UNSET))


        def _parse_ends_at(data: object) -> int | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(int | None | Unset, data)

        ends_at = _parse_ends_at(d.pop("ends_at", UNSET))


        def _parse_page(data: object) -> None | PageRequest | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                page_type_0 = PageRequest.from_dict(data)



                return page_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(None | PageRequest | Unset, data)

        page = _parse_page(d.pop("page", UNSET))


        token_request = cls(
            name=name,
            rights=rights,
            ttl_seconds=ttl_seconds,
            ends_at=ends_at,
            page=page,
        )

        return token_request

