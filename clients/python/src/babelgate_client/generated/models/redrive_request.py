from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast

if TYPE_CHECKING:
  from ..models.dead_letter_filter import DeadLetterFilter





T = TypeVar("T", bound="RedriveRequest")



@_attrs_define
class RedriveRequest:
    """ The dead letters to send back, and their target. Without `filter` and `ids`: all dead letters.

        Attributes:
            limit (int | None | Unset): Maximum number to send back; 1000 by default, and none with `background`.
            filter_ (DeadLetterFilter | Unset): A dead letter matches when it meets all given conditions. Without
                conditions, every dead letter matches.
            ids (list[str] | None | Unset): The `letter_id` of each dead letter; 1 to 1000. Not together with `filter`.
            to_queue (None | str | Unset): The target queue; by default the queue of the path.
            dry_run (bool | Unset): Only count the matching dead letters. Default: false.
            force (bool | Unset): Send records without a valid envelope, too: their original bytes, and the native headers
                where the target has them. Requires a `to_queue` other than the queue of the path. Default: false.
            per_second (float | None | Unset): Maximum rate, in dead letters per second. Without `background`, `limit`
                letters must take at most 60 s at this rate.
            background (bool | Unset): Answer 202 at once with a job, which `Location` leads to. Not with `dry_run`.
                Default: false.
     """

    limit: int | None | Unset = UNSET
    filter_: DeadLetterFilter | Unset = UNSET
    ids: list[str] | None | Unset = UNSET
    to_queue: None | str | Unset = UNSET
    dry_run: bool | Unset = UNSET
    force: bool | Unset = UNSET
    per_second: float | None | Unset = UNSET
    background: bool | Unset = UNSET





    def to_dict(self) -> dict[str, Any]:
        from ..models.dead_letter_filter import DeadLetterFilter # noqa: PLC0415
        limit: int | None | Unset
        if isinstance(self.limit, Unset):
            limit = UNSET
        else:
            limit = self.limit

        filter_: dict[str, Any] | Unset = UNSET
        if not isinstance(self.filter_, Unset):
            filter_ = self.filter_.to_dict()

        ids: list[str] | None | Unset
        if isinstance(self.ids, Unset):
            ids = UNSET
        elif isinstance(self.ids, list):
            ids = self.ids


        else:
            ids = self.ids

        to_queue: None | str | Unset
        if isinstance(self.to_queue, Unset):
            to_queue = UNSET
        else:
            to_queue = self.to_queue

        dry_run = self.dry_run

        force = self.force

        per_second: float | None | Unset
        if isinstance(self.per_second, Unset):
            per_second = UNSET
        else:
            per_second = self.per_second

        background = self.background


        field_dict: dict[str, Any] = {}

        field_dict.update({
        })
        if limit is not UNSET:
            field_dict["limit"] = limit
        if filter_ is not UNSET:
            field_dict["filter"] = filter_
        if ids is not UNSET:
            field_dict["ids"] = ids
        if to_queue is not UNSET:
            field_dict["to_queue"] = to_queue
        if dry_run is not UNSET:
            field_dict["dry_run"] = dry_run
        if force is not UNSET:
            field_dict["force"] = force
        if per_second is not UNSET:
            field_dict["per_second"] = per_second
        if background is not UNSET:
            field_dict["background"] = background

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.dead_letter_filter import DeadLetterFilter # noqa: PLC0415
        d = dict(src_dict)
        def _parse_limit(data: object) -> int | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(int | None | Unset, data)

        limit = _parse_limit(d.pop("limit", UNSET))


        _filter_ = d.pop("filter", UNSET)
        filter_: DeadLetterFilter | Unset
        if isinstance(_filter_,  Unset):
            filter_ = UNSET
        else:
            filter_ = DeadLetterFilter.from_dict(_filter_)




        def _parse_ids(data: object) -> list[str] | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, list):
                    raise TypeError()
                ids_type_0 = cast(list[str], data)

                return ids_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(list[str] | None | Unset, data)

        ids = _parse_ids(d.pop("ids", UNSET))


        def _parse_to_queue(data: object) -> None | str | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(None | str | Unset, data)

        to_queue = _parse_to_queue(d.pop("to_queue", UNSET))


        dry_run = d.pop("dry_run", UNSET)

        force = d.pop("force", UNSET)

        def _parse_per_second(data: object) -> float | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(float | None | Unset, data)

        per_second = _parse_per_second(d.pop("per_second", UNSET))


        background = d.pop("background", UNSET)

        redrive_request = cls(
            limit=limit,
            filter_=filter_,
            ids=ids,
            to_queue=to_queue,
            dry_run=dry_run,
            force=force,
            per_second=per_second,
            background=background,
        )

        return redrive_request

