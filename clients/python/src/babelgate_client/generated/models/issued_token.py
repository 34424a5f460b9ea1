from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.token import Token





T = TypeVar("T", bound="IssuedToken")



@_attrs_define
class IssuedToken:
    """ A token with its secret, and which processes know it.

        Attributes:
            kept (bool): Whether `state_dir` has it. `false`: it is in memory, and ends with the process that answers.
            told (int): How many other processes have confirmed that they know it.
            silent (list[str]): Peers that gave no answer, by address or socket. They learn it when they answer again.
            detail (str): The same in sentences for people.
            secret (str): What its holder sends: `Authorization: Bearer …`. It is shown once, and not kept.
            token (Token): A token, without its secret.
     """

    kept: bool
    told: int
    silent: list[str]
    detail: str
    secret: str
    token: Token
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.token import Token # noqa: PLC0415
        kept = self.kept

        told = self.told

        silent = self.silent



        detail = self.detail

        secret = self.secret

        token = self.token.to_dict()


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "kept": kept,
            "told": told,
            "silent": silent,
            "detail": detail,
            "secret": secret,
            "token": token,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.token import Token # noqa: PLC0415
        d = dict(src_dict)
        kept = d.pop("kept")

        told = d.pop("told")

        silent = cast(list[str], d.pop("silent"))


        detail = d.pop("detail")

        secret = d.pop("secret")

        token = Token.from_dict(d.pop("token"))




        issued_token = cls(
            kept=kept,
            told=told,
            silent=silent,
            detail=detail,
            secret=secret,
            token=token,
        )


        issued_token.additional_properties = d
        return issued_token

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
