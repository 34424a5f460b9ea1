"""The brokers under test: the harness of every driver in the app's registry."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from babelgate.brokers import registry
from tests.harness import ci, sharing
from tests.harness.broker import Broker, Variant

KINDS = tuple(dict.fromkeys(driver.kind for driver in registry.SCHEMES.values()))

HARNESSES: Mapping[str, tuple[Variant, ...]] = {
    kind: importlib.import_module(f"tests.brokers.{kind}.harness").VARIANTS for kind in KINDS
}
"""The variants of each broker, the ordinary one first: ``VARIANTS`` of ``tests.brokers.<kind>.harness``."""

ALL = [variant for variants in HARNESSES.values() for variant in variants]
ORDINARY = [variants[0] for variants in HARNESSES.values()]
WITH_SERVER = [variant for variant in ORDINARY if not variant.broker.embedded]
SHARED = {kind: HARNESSES[kind][0].broker for kind in sharing.KINDS}
"""The brokers whose servers all workers share."""


def marks(*variants: Variant) -> list[pytest.MarkDecorator]:
    """A mark named like each broker that has a server."""
    return [getattr(pytest.mark, each.broker.kind) for each in variants if not each.broker.embedded]


def params(variants: Iterable[Variant]) -> list[ParameterSet]:
    """The variants as marked parameters of a test."""
    return [pytest.param(variant, id=variant.name, marks=marks(variant)) for variant in variants]


class Servers:
    """The server of each broker: one that all workers share for tests that only use it, and one of this process for
    the others, which starts at its first use and ends with ``stack``.

    ``shared``: where the servers of all workers are; None where this process is the only one, whose server is for all.
    """

    def __init__(self, stack: ExitStack, directory: Callable[[str], Path], shared: Path | None = None) -> None:
        self._stack = stack
        self._directory = directory
        self._shared = shared
        self._lent: dict[str, sharing.Lent | None] = {}
        self._running: dict[tuple[Callable[..., Any], bool], Any] = {}
        """This process' server of each ``serve``, by whether it is durable: variants of a broker may be served
        differently."""

    def server(self, broker: type[Broker], durable: bool = True) -> Any:
        """The running server of a broker that is not embedded, for the test that runs. What it confirmed survives a
        kill; without ``durable`` that may be otherwise where it saves much."""
        if not durable and broker.costs_durability:
            return self._own(broker, durable=False)
        if broker.kind not in sharing.KINDS or not sharing.shares(_test()):
            return self._own(broker)
        return self._find_shared(broker) or sharing.Lent(self._own(broker))

    def running(self, broker: type[Broker]) -> Any:
        """The server of a broker as the last test left it; None before its first use."""
        if sharing.shares(_test()) and (lent := self._lent.get(broker.kind)) is not None:
            return lent
        return self._running.get((broker.serve, True))

    def broker(self, variant: Variant, directory: Path, durable: bool = True) -> Broker:
        """A running broker. An embedded one keeps its data in ``directory``."""
        return variant.on(directory if variant.broker.embedded else self.server(variant.broker, durable))

    def _own(self, broker: type[Broker], durable: bool = True) -> Any:
        key = broker.serve, durable
        with ci.starting(broker.kind):
            if key not in self._running:
                serving = broker.serve(self._directory(broker.kind), durable=durable)
                self._running[key] = self._stack.enter_context(serving)
            self._running[key].ensure()
        return self._running[key]

    def _find_shared(self, broker: type[Broker]) -> sharing.Lent | None:
        if self._shared is None or broker.serve is not SHARED[broker.kind].serve:
            return None
        if broker.kind not in self._lent:
            self._lent[broker.kind] = sharing.find(self._shared, broker.kind)
        return self._lent[broker.kind]


def _test() -> str:
    """The node id of the test that runs."""
    return os.environ["PYTEST_CURRENT_TEST"]
