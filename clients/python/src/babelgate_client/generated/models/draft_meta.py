from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.draft_meta_lang import check_draft_meta_lang
from ..models.draft_meta_lang import DraftMetaLang
from ..types import UNSET, Unset
from typing import cast






T = TypeVar("T", bound="DraftMeta")



@_attrs_define
class DraftMeta:
    """ What a draft may say of its producer. The gateway adds the other members.

        Attributes:
            lang (DraftMetaLang | Unset): The language of the producer. Without it: `python`.
            ext (Any | Unset): Extensions: an object, by vendor.
     """

    lang: DraftMetaLang | Unset = UNSET
    ext: Any | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        lang: str | Unset = UNSET
        if not isinstance(self.lang, Unset):
            lang = self.lang


        ext = self.ext


        field_dict: dict[str, Any] = {}

        field_dict.update({
        })
        if lang is not UNSET:
            field_dict["lang"] = lang
        if ext is not UNSET:
            field_dict["ext"] = ext

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        _lang = d.pop("lang", UNSET)
        lang: DraftMetaLang | Unset
        if isinstance(_lang,  Unset):
            lang = UNSET
        else:
            lang = check_draft_meta_lang(_lang)




        ext = d.pop("ext", UNSET)

        draft_meta = cls(
            lang=lang,
            ext=ext,
        )

        return draft_meta

