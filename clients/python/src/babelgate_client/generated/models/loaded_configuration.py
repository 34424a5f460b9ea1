from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from typing import cast

if TYPE_CHECKING:
  from ..models.configuration_refusal import ConfigurationRefusal
  from ..models.loaded_configuration_settings import LoadedConfigurationSettings
  from ..models.worker_configuration import WorkerConfiguration





T = TypeVar("T", bound="LoadedConfiguration")



@_attrs_define
class LoadedConfiguration:
    """ The configuration of the process that answers.

        Attributes:
            version (int): Counts the configurations of the gateway from 1, the start.
            digest (str): The same for all processes with the same configuration and token keys.
            loaded_at (int): When it was loaded, Unix milliseconds UTC.
            changed (list[str]): The keys, of at most two levels, that differ from the configuration before.
            refused (ConfigurationRefusal | None): The last attempt that was refused; `null`: a configuration was loaded
                after it, or there was none.
            workers (list[WorkerConfiguration]): Each worker of the gateway, the one that answers first. They load a
                configuration all together, or none does.
            settings (LoadedConfigurationSettings): The whole configuration, defaults included. Secrets, digests and
                passwords are masked.
     """

    version: int
    digest: str
    loaded_at: int
    changed: list[str]
    refused: ConfigurationRefusal | None
    workers: list[WorkerConfiguration]
    settings: LoadedConfigurationSettings
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.configuration_refusal import ConfigurationRefusal # noqa: PLC0415
        from ..models.loaded_configuration_settings import LoadedConfigurationSettings # noqa: PLC0415
        from ..models.worker_configuration import WorkerConfiguration # noqa: PLC0415
        version = self.version

        digest = self.digest

        loaded_at = self.loaded_at

        changed = self.changed



        refused: dict[str, Any] | None
        if isinstance(self.refused, ConfigurationRefusal):
            refused = self.refused.to_dict()
        else:
            refused = self.refused

        workers = []
        for workers_item_data in self.workers:
            workers_item = workers_item_data.to_dict()
            workers.append(workers_item)



        settings = self.settings.to_dict()


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "version": version,
            "digest": digest,
            "loaded_at": loaded_at,
            "changed": changed,
            "refused": refused,
            "workers": workers,
            "settings": settings,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.configuration_refusal import ConfigurationRefusal # noqa: PLC0415
        from ..models.loaded_configuration_settings import LoadedConfigurationSettings # noqa: PLC0415
        from ..models.worker_configuration import WorkerConfiguration # noqa: PLC0415
        d = dict(src_dict)
        version = d.pop("version")

        digest = d.pop("digest")

        loaded_at = d.pop("loaded_at")

        changed = cast(list[str], d.pop("changed"))


        def _parse_refused(data: object) -> ConfigurationRefusal | None:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                refused_type_0 = ConfigurationRefusal.from_dict(data)



                return refused_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(ConfigurationRefusal | None, data)

        refused = _parse_refused(d.pop("refused"))


        workers = []
        _workers = d.pop("workers")
        for workers_item_data in (_workers):
            workers_item = WorkerConfiguration.from_dict(workers_item_data)



            workers.append(workers_item)


        settings = LoadedConfigurationSettings.from_dict(d.pop("settings"))




        loaded_configuration = cls(
            version=version,
            digest=digest,
            loaded_at=loaded_at,
            changed=changed,
            refused=refused,
            workers=workers,
            settings=settings,
        )


        loaded_configuration.additional_properties = d
        return loaded_configuration

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
