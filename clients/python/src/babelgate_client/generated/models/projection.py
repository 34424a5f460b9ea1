from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.idempotency_keys import IdempotencyKeys
  from ..models.native_write import NativeWrite
  from ..models.projection_envelope import ProjectionEnvelope
  from ..models.projection_headers import ProjectionHeaders
  from ..models.warning import Warning_





T = TypeVar("T", bound="Projection")



@_attrs_define
class Projection:
    """ `envelope` is the canonical body, byte for byte, as a publish would write it or a consumer would read it.

        Attributes:
            queue (str): The name of the queue in paths.
            broker (str): The configured name of the broker.
            native_name (str): What the broker calls the queue.
            headers (ProjectionHeaders): Native headers of the message.
            size_bytes (int): Size of the body in bytes.
            warnings (list[Warning_]): What is accepted, and not as the contract recommends it.
            delay_seconds (float): Seconds until the message could be received; 0: at once.
            ordering_key (None | str): The ordering key; `null` without one.
            idempotency (IdempotencyKeys | None): How the `idempotency_key` of the entry would be kept; `null` without one.
            writes (list[NativeWrite]): What a publish would write to the broker, made by the code that publishes. Empty
                with `mode=consume`.
            envelope (ProjectionEnvelope): The canonical body.
     """

    queue: str
    broker: str
    native_name: str
    headers: ProjectionHeaders
    size_bytes: int
    warnings: list[Warning_]
    delay_seconds: float
    ordering_key: None | str
    idempotency: IdempotencyKeys | None
    writes: list[NativeWrite]
    envelope: ProjectionEnvelope
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.idempotency_keys import IdempotencyKeys # noqa: PLC0415
        from ..models.native_write import NativeWrite # noqa: PLC0415
        from ..models.projection_envelope import ProjectionEnvelope # noqa: PLC0415
        from ..models.projection_headers import ProjectionHeaders # noqa: PLC0415
        from ..models.warning import Warning_ # noqa: PLC0415
        queue = self.queue

        broker = self.broker

        native_name = self.native_name

        headers = self.headers.to_dict()

        size_bytes = self.size_bytes

        warnings = []
        for warnings_item_data in self.warnings:
            warnings_item = warnings_item_data.to_dict()
            warnings.append(warnings_item)



        delay_seconds = self.delay_seconds

        ordering_key: None | str
        ordering_key = self.ordering_key

        idempotency: dict[str, Any] | None
        if isinstance(self.idempotency, IdempotencyKeys):
            idempotency = self.idempotency.to_dict()
        else:
            idempotency = self.idempotency

        writes = []
        for writes_item_data in self.writes:
            writes_item = writes_item_data.to_dict()
            writes.append(writes_item)



        envelope = self.envelope.to_dict()


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "queue": queue,
            "broker": broker,
            "native_name": native_name,
            "headers": headers,
            "size_bytes": size_bytes,
            "warnings": warnings,
            "delay_seconds": delay_seconds,
            "ordering_key": ordering_key,
            "idempotency": idempotency,
            "writes": writes,
            "envelope": envelope,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.idempotency_keys import IdempotencyKeys # noqa: PLC0415
        from ..models.native_write import NativeWrite # noqa: PLC0415
        from ..models.projection_envelope import ProjectionEnvelope # noqa: PLC0415
        from ..models.projection_headers import ProjectionHeaders # noqa: PLC0415
        from ..models.warning import Warning_ # noqa: PLC0415
        d = dict(src_dict)
        queue = d.pop("queue")

        broker = d.pop("broker")

        native_name = d.pop("native_name")

        headers = ProjectionHeaders.from_dict(d.pop("headers"))




        size_bytes = d.pop("size_bytes")

        warnings = []
        _warnings = d.pop("warnings")
        for warnings_item_data in (_warnings):
            warnings_item = Warning_.from_dict(warnings_item_data)



            warnings.append(warnings_item)


        delay_seconds = d.pop("delay_seconds")

        def _parse_ordering_key(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        ordering_key = _parse_ordering_key(d.pop("ordering_key"))


        def _parse_idempotency(data: object) -> IdempotencyKeys | None:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                idempotency_type_0 = IdempotencyKeys.from_dict(data)



                return idempotency_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(IdempotencyKeys | None, data)

        idempotency = _parse_idempotency(d.pop("idempotency"))


        writes = []
        _writes = d.pop("writes")
        for writes_item_data in (_writes):
            writes_item = NativeWrite.from_dict(writes_item_data)



            writes.append(writes_item)


        envelope = ProjectionEnvelope.from_dict(d.pop("envelope"))




        projection = cls(
            queue=queue,
            broker=broker,
            native_name=native_name,
            headers=headers,
            size_bytes=size_bytes,
            warnings=warnings,
            delay_seconds=delay_seconds,
            ordering_key=ordering_key,
            idempotency=idempotency,
            writes=writes,
            envelope=envelope,
        )


        projection.additional_properties = d
        return projection

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
