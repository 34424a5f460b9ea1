"""Which configuration a process serves, and what became of the attempts to load another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from babelgate.errors import BabelgateError, ConfigError
from babelgate.gateway.authorization import Caller, Right

LOAD_OUTCOMES = ("applied", "refused")


class RestartNeeded(BabelgateError):
    """{key}: {reason}"""

    code = "restart_needed"


class ReloadUnavailable(BabelgateError):
    """The configuration cannot be loaded again: {reason}."""

    code = "reload_unavailable"


REFUSALS = (ConfigError, RestartNeeded, ReloadUnavailable)
"""Why a configuration is not loaded. Each has the facts ``key`` and ``reason``, and where there are more, ``problems``:
all pairs of them."""
NO_FILE = "the gateway was not started from a file"


class Refusal(Struct, frozen=True):
    """Why a configuration was refused. ``at``: Unix ms. ``problems``: each key and its reason, the first of all."""

    at: int
    cause: str
    problems: Sequence[tuple[str, str]]


class LoadedConfiguration(Struct):
    """``version`` counts from 1, the start. ``loaded_at``: Unix ms. ``digest``: the same for all processes with the
    same configuration and token keys. ``shown``: the configuration, secrets masked. ``changed``: the keys of the last
    change. ``refusal``: the last one, None once a configuration was applied after it. ``load``: loads it again, for the
    cause and the name of the caller that it is given; None where nothing can."""

    loaded_at: int
    digest: str
    shown: Mapping[str, Any]
    version: int = 1
    changed: Sequence[str] = ()
    refusal: Refusal | None = None
    counts: Counter[str] = field(default_factory=Counter)
    load: Callable[[str, str], Awaitable[LoadedConfiguration]] | None = None

    def checked(self, caller: Caller) -> LoadedConfiguration:
        """This, for a caller who may see it. Raises Forbidden without the right to manage all queues."""
        caller.require_everywhere(Right.MANAGE)
        return self

    async def reload(self, caller: Caller) -> LoadedConfiguration:
        """Load the configuration again, and serve by it. Waits for new brokers, as a start does.

        Raises Forbidden as :meth:`checked`, RestartNeeded, ReloadUnavailable, and ConfigError for one that is refused:
        ``problems`` are all that was found, and nothing has changed then.
        """
        caller.require_everywhere(Right.MANAGE)
        if self.load is None:
            raise ReloadUnavailable(key="config", reason=NO_FILE)
        return await self.load("http", caller.name)
