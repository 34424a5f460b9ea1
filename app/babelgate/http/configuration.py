"""Endpoints for the configuration of the process that answers: show it, load it again."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from babelgate.gateway.loaded import NO_FILE, LoadedConfiguration, Refusal, ReloadUnavailable, WorkerConfiguration
from babelgate.http.dependencies import GATEWAY, NO_PARAMETERS, CallerOf
from babelgate.http.views import View
from babelgate.observe.audit.notes import note


class ConfigurationFaultView(View):
    """A key of the configuration that was refused."""

    key: str
    """The key, dotted, as the file spells it."""
    reason: str
    """What is wrong with it, for people."""


class ConfigurationRefusalView(View):
    """An attempt to load the configuration that was refused as a whole."""

    at: int = Field(description="When it was refused, Unix milliseconds UTC.")
    cause: str
    """What asked for it: `http`, `SIGHUP`, or `file` for a file that is watched."""
    faults: list[ConfigurationFaultView]
    """All that was found."""


class ConfigurationReloadView(View):
    """The configuration that the process serves by now."""

    version: int
    """Counts the configurations of the gateway from 1, the start."""
    digest: str
    """The same for all processes with the same configuration and token keys."""
    loaded_at: int = Field(description="When it was loaded, Unix milliseconds UTC.")
    changed: list[str]
    """The keys, of at most two levels, that differ from the configuration before."""


class WorkerConfigurationView(View):
    """What a worker of the gateway serves."""

    pid: int
    """Its process."""
    version: int | None
    """The version of its configuration; `null` if it did not answer, and so are the others."""
    digest: str | None
    """The digest of its configuration."""
    loaded_at: int | None = Field(description="When it was loaded, Unix milliseconds UTC.")


class LoadedConfigurationView(ConfigurationReloadView):
    """The configuration of the process that answers."""

    refused: ConfigurationRefusalView | None = Field(
        description="The last attempt that was refused; `null`: a configuration was loaded after it, or there was none."
    )
    workers: list[WorkerConfigurationView]
    """Each worker of the gateway, the one that answers first. They load a configuration all together, or none does."""
    settings: dict[str, Any]
    """The whole configuration, defaults included. Secrets, digests and passwords are masked."""


def _loaded(request: Request) -> LoadedConfiguration:
    loaded: LoadedConfiguration | None = request.scope[GATEWAY].overview.loaded
    if loaded is None:
        raise ReloadUnavailable(key="config", reason=NO_FILE)
    return loaded


LoadedOf = Annotated[LoadedConfiguration, Depends(_loaded)]


@cache
def routes() -> APIRouter:
    """The routes of every application in this process."""
    router = APIRouter(dependencies=NO_PARAMETERS)

    @router.get("/config")
    async def get_configuration(loaded: LoadedOf, caller: CallerOf) -> LoadedConfigurationView:
        found = loaded.checked(caller)
        workers = [_worker(each) for each in await found.of_workers()]
        refused = _refused(found.refusal)
        return LoadedConfigurationView(**_members(found), refused=refused, workers=workers, settings=dict(found.shown))

    @router.post("/config:reload")
    async def reload_configuration(loaded: LoadedOf, caller: CallerOf) -> ConfigurationReloadView:
        found = await loaded.reload(caller)
        note(version=found.version, digest=found.digest)
        return ConfigurationReloadView(**_members(found))

    return router


def _members(loaded: LoadedConfiguration) -> dict[str, Any]:
    return {
        "version": loaded.version,
        "digest": loaded.digest,
        "loaded_at": loaded.loaded_at,
        "changed": list(loaded.changed),
    }


def _worker(worker: WorkerConfiguration) -> WorkerConfigurationView:
    served = worker.served
    if served is None:
        return WorkerConfigurationView(pid=worker.pid, version=None, digest=None, loaded_at=None)
    return WorkerConfigurationView(
        pid=worker.pid, version=served.version, digest=served.digest, loaded_at=served.loaded_at
    )


def _refused(refusal: Refusal | None) -> ConfigurationRefusalView | None:
    if refusal is None:
        return None
    faults = [ConfigurationFaultView(key=key, reason=reason) for key, reason in refusal.problems]
    return ConfigurationRefusalView(at=refusal.at, cause=refusal.cause, faults=faults)
