"""Which configuration a process serves, and what became of the attempts to load another one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

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


def problems_of(error: BabelgateError) -> list[tuple[str, str]]:
    """Each key with its reason, at least one."""
    problems = [(str(key), str(reason)) for key, reason in error.facts.get("problems") or ()]
    return problems or [(str(error.facts.get("key", "")), str(error.facts.get("reason", error)))]


NO_FILE = "the gateway was not started from a file"


class Refusal(Struct, frozen=True):
    """Why a configuration was refused. ``at``: Unix ms. ``problems``: each key and its reason, the first of all."""

    at: int
    cause: str
    problems: Sequence[tuple[str, str]]


class ConfigurationCall(Struct, frozen=True, omit_defaults=True):
    """What a worker asks another one: which configuration it serves, to prepare the candidate ``id``, to serve by it,
    or to drop it, because it was refused for ``problems``. ``file``: the digest of the file that was refused."""

    phase: Literal["show", "prepare", "apply", "refuse"]
    id: str = ""
    cause: str = ""
    problems: Sequence[tuple[str, str]] = ()
    file: bytes | None = None


class ConfigurationAnswer(Struct, frozen=True, omit_defaults=True):
    """What that worker serves, and why it refuses: a problem code, and each key with its reason."""

    version: int
    digest: str
    loaded_at: int
    code: str = ""
    problems: Sequence[tuple[str, str]] = ()


class WorkerConfiguration(Struct, frozen=True):
    """What a worker serves; None if it did not say. ``pid``: its process."""

    pid: int
    served: ConfigurationAnswer | None


class LoadedConfiguration(Struct):
    """``version`` counts from 1, the start. ``loaded_at``: Unix ms. ``digest``: the same for all processes with the
    same configuration and token keys. ``shown``: the configuration, secrets masked. ``changed``: the keys of the last
    change. ``refusal``: the last one, None once a configuration was applied after it. ``load``: loads it again, for the
    cause and the name of the caller that it is given; None where nothing can. ``answer``: answers another worker;
    ``workers``: asks all others; None where there are none."""

    loaded_at: int
    digest: str
    shown: Mapping[str, Any]
    version: int = 1
    changed: Sequence[str] = ()
    refusal: Refusal | None = None
    counts: Counter[str] = field(default_factory=Counter)
    load: Callable[[str, str], Awaitable[LoadedConfiguration]] | None = None
    answer: Callable[[ConfigurationCall], Awaitable[ConfigurationAnswer]] | None = None
    workers: Callable[[], Awaitable[Sequence[WorkerConfiguration]]] | None = None

    def served(self, code: str = "", problems: Sequence[tuple[str, str]] = ()) -> ConfigurationAnswer:
        """This, for another worker."""
        return ConfigurationAnswer(self.version, self.digest, self.loaded_at, code, problems)

    async def of_workers(self) -> Sequence[WorkerConfiguration]:
        """What each worker of this gateway serves, this one first; takes some 3 s at most. Never raises."""
        others = () if self.workers is None else await self.workers()
        return [WorkerConfiguration(os.getpid(), self.served()), *others]

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
