from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.page import Page
  from ..models.token_rights import TokenRights





T = TypeVar("T", bound="Token")



@_attrs_define
class Token:
    """ A token, without its secret.

        Attributes:
            id (str): Its id in paths.
            name (str): The name of its holder in logs.
            rights (TokenRights): For each name or pattern of queues: `send`, `listen`, `manage`, `observe`.
            created_at (int): When it was made, Unix milliseconds UTC.
            created_by (str): The name of the caller that made it.
            ends_at (int): When it ends, Unix milliseconds UTC.
            old_ends_at (int | None): When its old secret ends, Unix milliseconds UTC; `null`: it has one secret.
            page (None | Page): The bounds of a token that is part of a web page; `null`: of none.
     """

    id: str
    name: str
    rights: TokenRights
    created_at: int
    created_by: str
    ends_at: int
    old_ends_at: int | None
    page: None | Page
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.page import Page # noqa: PLC0415
        from ..models.token_rights import TokenRights # noqa: PLC0415
        id = self.id

        name = self.name

        rights = self.rights.to_dict()

        created_at = self.created_at

        created_by = self.created_by

        ends_at = self.ends_at

        old_ends_at: int | None
        old_ends_at = self.old_ends_at

        page: dict[str, Any] | None
        if isinstance(self.page, Page):
            page = self.page.to_dict()
        else:
            page = self.page


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "id": id,
            "name": name,
            "rights": rights,
            "created_at": created_at,
            "created_by": created_by,
            "ends_at": ends_at,
            "old_ends_at": old_ends_at,
            "page": page,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.page import Page # noqa: PLC0415
        from ..models.token_rights import TokenRights # noqa: PLC0415
        d = dict(src_dict)
        id = d.pop("id")

        name = d.pop("name")

        rights = TokenRights.from_dict(d.pop("rights"))




        created_at = d.pop("created_at")

        created_by = d.pop("created_by")

        ends_at = d.pop("ends_at")

        def _parse_old_ends_at(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        old_ends_at = _parse_old_ends_at(d.pop("old_ends_at"))


        def _parse_page(data: object) -> None | Page:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                page_type_0 = Page.from_dict(data)



                return page_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(None | Page, data)

        page = _parse_page(d.pop("page"))


        token = cls(
            id=id,
            name=name,
            rights=rights,
            created_at=created_at,
            created_by=created_by,
            ends_at=ends_at,
            old_ends_at=old_ends_at,
            page=page,
        )


        token.additional_properties = d
        return token

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
