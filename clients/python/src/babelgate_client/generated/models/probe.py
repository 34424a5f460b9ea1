from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..types import UNSET, Unset
from typing import cast
from typing import Literal, cast

if TYPE_CHECKING:
  from ..models.broker_state import BrokerState
  from ..models.issuer_state import IssuerState
  from ..models.schemas_state import SchemasState





T = TypeVar("T", bound="Probe")



@_attrs_define
class Probe:
    """ The answer of a successful probe.

        Attributes:
            status (Literal['ok']): Always `ok`; any other state is a problem.
            brokers (list[BrokerState] | None | Unset): Only with `verbose`, and for callers that may manage queues on these
                brokers.
            schemas (None | SchemasState | Unset): Only with `verbose`, where they are from a URL, and for callers that see
                brokers.
            issuers (list[IssuerState] | None | Unset): Only with `verbose`, where some are configured, and for callers that
                see brokers.
     """

    status: Literal['ok']
    brokers: list[BrokerState] | None | Unset = UNSET
    schemas: None | SchemasState | Unset = UNSET
    issuers: list[IssuerState] | None | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.broker_state import BrokerState # noqa: PLC0415
        from ..models.issuer_state import IssuerState # noqa: PLC0415
        from ..models.schemas_state import SchemasState # noqa: PLC0415
        status = self.status

        brokers: list[dict[str, Any]] | None | Unset
        if isinstance(self.brokers, Unset):
            brokers = UNSET
        elif isinstance(self.brokers, list):
            brokers = []
            for brokers_type_0_item_data in self.brokers:
                brokers_type_0_item = brokers_type_0_item_data.to_dict()
                brokers.append(brokers_type_0_item)


        else:
            brokers = self.brokers

        schemas: dict[str, Any] | None | Unset
        if isinstance(self.schemas, Unset):
            schemas = UNSET
        elif isinstance(self.schemas, SchemasState):
            schemas = self.schemas.to_dict()
        else:
            schemas = self.schemas

        issuers: list[dict[str, Any]] | None | Unset
        if isinstance(self.issuers, Unset):
            issuers = UNSET
        elif isinstance(self.issuers, list):
            issuers = []
            for issuers_type_0_item_data in self.issuers:
                issuers_type_0_item = issuers_type_0_item_data.to_dict()
                issuers.append(issuers_type_0_item)


        else:
            issuers = self.issuers


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "status": status,
        })
        if brokers is not UNSET:
            field_dict["brokers"] = brokers
        if schemas is not UNSET:
            field_dict["schemas"] = schemas
        if issuers is not UNSET:
            field_dict["issuers"] = issuers

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.broker_state import BrokerState # noqa: PLC0415
        from ..models.issuer_state import IssuerState # noqa: PLC0415
        from ..models.schemas_state import SchemasState # noqa: PLC0415
        d = dict(src_dict)
        status = cast(Literal['ok'] , d.pop("status"))
        if status != 'ok':
            raise ValueError(f"status must match const 'ok', got '{status}'")

        def _parse_brokers(data: object) -> list[BrokerState] | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, list):
                    raise TypeError()
                brokers_type_0 = []
                _brokers_type_0 = data
                for brokers_type_0_item_data in (_brokers_type_0):
                    brokers_type_0_item = BrokerState.from_dict(brokers_type_0_item_data)



                    brokers_type_0.append(brokers_type_0_item)

                return brokers_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(list[BrokerState] | None | Unset, data)

        brokers = _parse_brokers(d.pop("brokers", UNSET))


        def _parse_schemas(data: object) -> None | SchemasState | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                schemas_type_0 = SchemasState.from_dict(data)



                return schemas_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(None | SchemasState | Unset, data)

        schemas = _parse_schemas(d.pop("schemas", UNSET))


        def _parse_issuers(data: object) -> list[IssuerState] | None | Unset:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, list):
                    raise TypeError()
                issuers_type_0 = []
                _issuers_type_0 = data
                for issuers_type_0_item_data in (_issuers_type_0):
                    issuers_type_0_item = IssuerState.from_dict(issuers_type_0_item_data)



                    issuers_type_0.append(issuers_type_0_item)

                return issuers_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(list[IssuerState] | None | Unset, data)

        issuers = _parse_issuers(d.pop("issuers", UNSET))


        probe = cls(
            status=status,
            brokers=brokers,
            schemas=schemas,
            issuers=issuers,
        )


        probe.additional_properties = d
        return probe

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
