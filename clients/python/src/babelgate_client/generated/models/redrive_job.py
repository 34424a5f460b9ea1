from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.redrive_job_state import check_redrive_job_state
from ..models.redrive_job_state import RedriveJobState
from typing import cast

if TYPE_CHECKING:
  from ..models.job_error import JobError
  from ..models.redrive_failure import RedriveFailure





T = TypeVar("T", bound="RedriveJob")



@_attrs_define
class RedriveJob:
    """ A redrive in the background. After a resume, the counts begin with what was redriven before.

        Attributes:
            scanned (int): Dead letters that were read.
            matched (int): Dead letters that met the conditions.
            redriven (int): Dead letters that were sent back and removed.
            failed (int): Dead letters that could not be sent back, and unknown ids.
            complete (bool): Whether all was read, and nothing that met the conditions is left.
            errors (list[RedriveFailure]): The first 20 dead letters that could not be sent back.
            errors_omitted (int): The number of failures that `errors` does not have.
            id (str): Identifies the job on its host.
            queue (str): The queue whose dead letters are sent back.
            state (RedriveJobState): `cancelled`: on request; `interrupted`: its process has ended; `failed`: see `error`.
                These can be resumed. `completed`: all was read, or `limit` was reached.
            to_queue (str): The queue to which they are sent.
            limit (int | None): Maximum number to send back; `null`: no maximum.
            force (bool): Whether records without a valid envelope are sent, too.
            per_second (float | None): Maximum rate, in dead letters per second; `null`: no maximum.
            error (JobError | None): Why the job has failed; `null` in other states.
            started_at (int): Unix milliseconds UTC. Letters that were dead-lettered later are left.
            updated_at (int): Unix milliseconds UTC.
     """

    scanned: int
    matched: int
    redriven: int
    failed: int
    complete: bool
    errors: list[RedriveFailure]
    errors_omitted: int
    id: str
    queue: str
    state: RedriveJobState
    to_queue: str
    limit: int | None
    force: bool
    per_second: float | None
    error: JobError | None
    started_at: int
    updated_at: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.job_error import JobError # noqa: PLC0415
        from ..models.redrive_failure import RedriveFailure # noqa: PLC0415
        scanned = self.scanned

        matched = self.matched

        redriven = self.redriven

        failed = self.failed

        complete = self.complete

        errors = []
        for errors_item_data in self.errors:
            errors_item = errors_item_data.to_dict()
            errors.append(errors_item)



        errors_omitted = self.errors_omitted

        id = self.id

        queue = self.queue

        state: str = self.state

        to_queue = self.to_queue

        limit: int | None
        limit = self.limit

        force = self.force

        per_second: float | None
        per_second = self.per_second

        error: dict[str, Any] | None
        if isinstance(self.error, JobError):
            error = self.error.to_dict()
        else:
            error = self.error

        started_at = self.started_at

        updated_at = self.updated_at


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "scanned": scanned,
            "matched": matched,
            "redriven": redriven,
            "failed": failed,
            "complete": complete,
            "errors": errors,
            "errors_omitted": errors_omitted,
            "id": id,
            "queue": queue,
            "state": state,
            "to_queue": to_queue,
            "limit": limit,
            "force": force,
            "per_second": per_second,
            "error": error,
            "started_at": started_at,
            "updated_at": updated_at,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.job_error import JobError # noqa: PLC0415
        from ..models.redrive_failure import RedriveFailure # noqa: PLC0415
        d = dict(src_dict)
        scanned = d.pop("scanned")

        matched = d.pop("matched")

        redriven = d.pop("redriven")

        failed = d.pop("failed")

        complete = d.pop("complete")

        errors = []
        _errors = d.pop("errors")
        for errors_item_data in (_errors):
            errors_item = RedriveFailure.from_dict(errors_item_data)



            errors.append(errors_item)


        errors_omitted = d.pop("errors_omitted")

        id = d.pop("id")

        queue = d.pop("queue")

        state = check_redrive_job_state(d.pop("state"))




        to_queue = d.pop("to_queue")

        def _parse_limit(data: object) -> int | None:
            if data is None:
                return data
            return cast(int | None, data)

        limit = _parse_limit(d.pop("limit"))


        force = d.pop("force")

        def _parse_per_second(data: object) -> float | None:
            if data is None:
                return data
            return cast(float | None, data)

        per_second = _parse_per_second(d.pop("per_second"))


        def _parse_error(data: object) -> JobError | None:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                error_type_0 = JobError.from_dict(data)



                return error_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(JobError | None, data)

        error = _parse_error(d.pop("error"))


        started_at = d.pop("started_at")

        updated_at = d.pop("updated_at")

        redrive_job = cls(
            scanned=scanned,
            matched=matched,
            redriven=redriven,
            failed=failed,
            complete=complete,
            errors=errors,
            errors_omitted=errors_omitted,
            id=id,
            queue=queue,
            state=state,
            to_queue=to_queue,
            limit=limit,
            force=force,
            per_second=per_second,
            error=error,
            started_at=started_at,
            updated_at=updated_at,
        )


        redrive_job.additional_properties = d
        return redrive_job

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
