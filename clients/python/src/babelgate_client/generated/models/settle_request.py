from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast

if TYPE_CHECKING:
  from ..models.extend_request import ExtendRequest
  from ..models.nack_request import NackRequest
  from ..models.reject_request import RejectRequest





T = TypeVar("T", bound="SettleRequest")



@_attrs_define
class SettleRequest:
    """ Acks, nacks, rejects and extends in one call: 1 to 1000 tokens in total.

        Attributes:
            acks (list[str] | Unset): Ack tokens of messages to remove from the queue.
            nacks (list[NackRequest] | Unset): Messages to deliver again.
            rejects (list[RejectRequest] | Unset): Messages to dead-letter immediately.
            extends (list[ExtendRequest] | Unset): Leases to prolong.
     """

    acks: list[str] | Unset = UNSET
    nacks: list[NackRequest] | Unset = UNSET
    rejects: list[RejectRequest] | Unset = UNSET
    extends: list[ExtendRequest] | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        from ..models.extend_request import ExtendRequest # noqa: PLC0415
        from ..models.nack_request import NackRequest # noqa: PLC0415
        from ..models.reject_request import RejectRequest # noqa: PLC0415
        acks: list[str] | Unset = UNSET
        if not isinstance(self.acks, Unset):
            acks = self.acks



        nacks: list[dict[str, Any]] | Unset = UNSET
        if not isinstance(self.nacks, Unset):
            nacks = []
            for nacks_item_data in self.nacks:
                nacks_item = nacks_item_data.to_dict()
                nacks.append(nacks_item)



        rejects: list[dict[str, Any]] | Unset = UNSET
        if not isinstance(self.rejects, Unset):
            rejects = []
            for rejects_item_data in self.rejects:
                rejects_item = rejects_item_data.to_dict()
                rejects.append(rejects_item)



        extends: list[dict[str, Any]] | Unset = UNSET
        if not isinstance(self.extends, Unset):
            extends = []
            for extends_item_data in self.extends:
                extends_item = extends_item_data.to_dict()
                extends.append(extends_item)




        field_dict: dict[str, Any] = {}

        field_dict.update({
        })
        if acks is not UNSET:
            field_dict["acks"] = acks
        if nacks is not UNSET:
            field_dict["nacks"] = nacks
        if rejects is not UNSET:
            field_dict["rejects"] = rejects
        if extends is not UNSET:
            field_dict["extends"] = extends

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.extend_request import ExtendRequest # noqa: PLC0415
        from ..models.nack_request import NackRequest # noqa: PLC0415
        from ..models.reject_request import RejectRequest # noqa: PLC0415
        d = dict(src_dict)
        acks = cast(list[str], d.pop("acks", UNSET))


        _nacks = d.pop("nacks", UNSET)
        nacks: list[NackRequest] | Unset = UNSET
        if _nacks is not UNSET:
            nacks = []
            for nacks_item_data in _nacks:
                nacks_item = NackRequest.from_dict(nacks_item_data)



                nacks.append(nacks_item)


        _rejects = d.pop("rejects", UNSET)
        rejects: list[RejectRequest] | Unset = UNSET
        if _rejects is not UNSET:
            rejects = []
            for rejects_item_data in _rejects:
                rejects_item = RejectRequest.from_dict(rejects_item_data)



                rejects.append(rejects_item)


        _extends = d.pop("extends", UNSET)
        extends: list[ExtendRequest] | Unset = UNSET
        if _extends is not UNSET:
            extends = []
            for extends_item_data in _extends:
                extends_item = ExtendRequest.from_dict(extends_item_data)



                extends.append(extends_item)


        settle_request = cls(
            acks=acks,
            nacks=nacks,
            rejects=rejects,
            extends=extends,
        )

        return settle_request

