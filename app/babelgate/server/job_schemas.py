"""The schemas of jobs of the configuration: read at the start, and a bundle of a URL again in the background."""

from __future__ import annotations

import asyncio
import random

from babelgate.config.settings import Settings
from babelgate.errors import ConfigError, StateUnavailable, shortened
from babelgate.gateway.schema_checks import SchemaChecks
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.backoff import Backoff
from babelgate.schemas.job_schemas import JobSchemas, compiled_bundle, load, refuse
from babelgate.schemas.source import BundleNotRead, BundleSource

log = get_logger(__name__)

_URL = "schemas.url"
_LOOK_SECONDS = 5.0
"""How soon it is noticed that a reload has configured another URL."""
_MOST_SECONDS = 600.0
"""The longest pause after failures, unless ``refresh_seconds`` is longer."""


def job_schemas(settings: Settings) -> JobSchemas:
    """The schemas of the configuration; none without a directory and a URL.

    Reads the URL, and where that fails the bundle that was kept. Blocks for the disk, and for a URL some 10 s. Raises
    ConfigError naming ``schemas.directory`` or ``schemas.url``.
    """
    section = settings.schemas
    if section.url is None:
        return JobSchemas() if section.directory is None else load(section.directory)
    source = BundleSource(
        section.url, settings.state_dir / "schemas", section.refresh_seconds, section.ca_file, section.bearer_file
    )
    try:
        fetched = source.fetch()
        assert fetched is not None
        schemas, faults = compiled_bundle(fetched[0])
        refuse(faults, _URL)
    except (BundleNotRead, ConfigError) as error:
        kept = source.kept()
        schemas, faults = (JobSchemas(), []) if kept is None else compiled_bundle(kept[0])
        if kept is None or faults:
            raise error if isinstance(error, ConfigError) else ConfigError(key=_URL, reason=str(error)) from None
        log.warning("schemas not read: those of the last start are used", url=section.url, reason=_reason(error))
        return schemas.of(source.at(*kept), _reason(error))
    return _kept(schemas, source.at(*fetched), fetched[0])


def _kept(schemas: JobSchemas, source: BundleSource, bundle: bytes) -> JobSchemas:
    try:
        source.keep(bundle)
    except StateUnavailable as error:
        log.warning("schemas not kept for a start without the network", reason=error.detail)
    return schemas.of(source)


def _reason(error: Exception) -> str:
    return shortened(str(error))


class SchemaRefresh:
    """Reads the bundle of the URL again, for as long as the schemas that are used are from one. A bundle that cannot be
    used changes nothing."""

    def __init__(self, checks: SchemaChecks) -> None:
        self._checks = checks
        self._tasks: BackgroundTasks[None] = BackgroundTasks()

    async def start(self) -> None:
        """Start."""
        self._tasks.start(self._run())

    async def close(self) -> None:
        """Stop. A read that is under way ends by itself within some 10 s, and changes nothing."""
        await self._tasks.cancel()

    async def _run(self) -> None:
        while True:
            used = self._checks.schemas
            self._checks.refresh_failure = used.failure
            if used.source is None:
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                await self._follow(used, used.source)

    async def _follow(self, used: JobSchemas, source: BundleSource) -> None:
        """Read ``source``, which ``used`` are from, again and again, until those of another place are configured."""
        backoff, pause = Backoff(1, _MOST_SECONDS), _pause(source)
        while await self._is_still(source, pause):
            before = self._checks.schemas
            if before is not used and before.source is not None:
                # A reload has read another bundle of this place than was read here.
                used, source = before, before.source
                self._checks.refresh_failure = used.failure
            try:
                made, source = await asyncio.to_thread(_read, source)
            except BundleNotRead as error:
                self._failed(source, str(error))
                pause = max(backoff.failed(), _pause(source))
                continue
            backoff.succeeded()
            pause = _pause(source)
            if isinstance(made, str):
                self._failed(source, made)
            elif made is not None and self._checks.schemas is before:
                self._checks.schemas = used = made
                self._checks.refresh_failure = None
                log.info("schemas replaced", url=source.url, schemas=len(made))
            elif made is None and before.source == source:
                self._checks.refresh_failure = None

    async def _is_still(self, source: BundleSource, pause: float) -> bool:
        """Whether ``source`` is configured for the next ``pause`` seconds, and after them."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + pause
        while True:
            used = self._checks.schemas.source
            if used is None or not used.is_place_of(source):
                return False
            if (left := ends - loop.time()) <= 0:
                return True
            await asyncio.sleep(min(left, _LOOK_SECONDS))

    def _failed(self, source: BundleSource, reason: str) -> None:
        self._checks.refresh_failure = shortened(reason)
        log.warning("schemas not replaced", url=source.url, reason=self._checks.refresh_failure)


def _pause(source: BundleSource) -> float:
    return source.refresh_seconds * random.uniform(0.9, 1)


def _read(source: BundleSource) -> tuple[JobSchemas | str | None, BundleSource]:
    """What is at ``source`` now: schemas, why they cannot be used, or None if it is what was read last; and the source
    with the ETag of it. Blocks. Raises BundleNotRead."""
    fetched = source.fetch()
    if fetched is None:
        return None, source
    # A bundle that cannot be used has been read, too, and is not read again.
    read = source.at(*fetched)
    schemas, faults = compiled_bundle(fetched[0])
    return (str(faults[0]) if faults else _kept(schemas, read, fetched[0])), read
