"""The journal that a configuration asks for."""

from __future__ import annotations

from app.clock import Clock, now_ms
from app.config.settings import Settings
from app.observe.journal.writer import Journal, Options


def journal(settings: Settings, clock: Clock = now_ms) -> Journal | None:
    """The journal, not yet started; None where none is configured. Raises ConfigError naming a key of ``journal``."""
    asked = settings.journal
    if asked.landing is None:
        return None
    options = Options(
        landing=asked.landing,
        open_directory=asked.open_directory or settings.state_dir / "journal",
        node=asked.node,
        compression=asked.compression,
        segment_bytes=asked.segment_bytes,
        segment_seconds=asked.segment_seconds,
        bodies=asked.bodies,
        buffer_bytes=asked.buffer_bytes,
        wait=asked.when_full == "wait",
    )
    return Journal(options, clock)


def check_journal(settings: Settings) -> None:
    """Raise ConfigError naming a key of ``journal`` where it could not start; makes nothing."""
    configured = journal(settings)
    if configured is not None:
        configured.check()
