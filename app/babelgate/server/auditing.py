"""Makes the audit trail from the settings, and the fingerprints of a configuration that it keeps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import SecretStr

from babelgate import __version__
from babelgate.clock import Clock
from babelgate.config.changes import shown
from babelgate.config.settings import Settings
from babelgate.config.token_keys import token_keys
from babelgate.errors import ConfigError
from babelgate.gateway.loaded import LoadedConfiguration
from babelgate.observe.audit.lines import AuditKey
from babelgate.observe.audit.trail import KEY, Audit, AuditOptions
from babelgate.observe.journal.writer import host_node
from babelgate.runtime.files import check_writable

_DIGITS = 16


def make_audit(settings: Settings, clock: Clock) -> Audit | None:
    """The audit trail without starting it; None where none is configured. Raises ConfigError."""
    section = settings.audit
    if section.directory is None:
        return None
    if section.max_bytes is not None and section.max_bytes < 2 * section.file_bytes:
        reason = f"must be at least twice audit.file_bytes, {2 * section.file_bytes}: only whole files are removed"
        raise ConfigError(key="audit.max_bytes", reason=reason)
    options = AuditOptions(
        directory=section.directory,
        node=section.node or host_node(),
        file_bytes=section.file_bytes,
        max_bytes=section.max_bytes,
        retention_seconds=None if section.retention_days is None else section.retention_days * 86_400,
        refusals=section.refusals,
        when_full=section.when_full,
    )
    keys = audit_keys(settings)
    start = {"version": __version__, "pid": os.getpid(), "configuration": fingerprint(settings, keys[0])}
    return Audit(options, keys, start, clock)


def check_audit(settings: Settings) -> None:
    """Raise the ConfigError of a trail that could not start. Creates nothing."""
    if settings.audit.directory is not None:
        check_writable(settings.audit.directory, KEY)


def audit_keys(settings: Settings) -> Sequence[AuditKey]:
    """The keys of the trail, which belong to those of ack tokens. Raises ConfigError."""
    return [AuditKey.of(key.id, key.secret) for key in token_keys(settings)]


def fingerprint(settings: Settings, key: AuditKey) -> dict[str, str]:
    """A digest of each section of a configuration, its secrets included, and of all. Only who has the key can compare
    it with a guess."""
    tree = settings.model_dump(mode="python")
    digests = {name: key.digest(_text(tree[name]))[:_DIGITS] for name in sorted(tree)}
    return {"all": key.digest(_text(tree))[:_DIGITS], **digests}


def loaded_at_start(settings: Settings, clock: Clock) -> LoadedConfiguration:
    """The configuration that a process starts with."""
    return LoadedConfiguration(clock(), fingerprint(settings, audit_keys(settings)[0])["all"], shown(settings))


def _text(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=_plain, order="sorted")


def _plain(value: object) -> object:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
