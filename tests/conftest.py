"""Fixtures for every test, the choice of tests, the table of the official suite, and how workers share the tests."""

from __future__ import annotations

import contextlib
import gc
import itertools
import signal
import sys
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import psutil
import pytest

from babelgate.brokers import registry
from tests.harness import ci, conformance, groups, limits, repeated
from tests.harness.sharing import SharedServers
from tests.harness.workers import ForkedWorkers

_SHARED = pytest.StashKey[SharedServers]()
"""Of the process that distributes the tests."""

_left: list[psutil.Process] = []
"""All workers of a run that is interrupted, and the servers that they have started."""

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

    from tests.brokers.rabbitmq.server import RabbitServer
    from tests.brokers.registry import Servers

# Collection makes many objects that stay, and no garbage. The garbage collector skips them afterwards.
gc.disable()

# A busy machine is no defect.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("fast", hypothesis.settings.get_profile("any machine"), max_examples=20)
hypothesis.settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--only", help="essential, or groups and shards as in kafka,http,3/8")
    parser.addoption("--green", action="store_true", help="write to .ci/green which groups passed")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.green and not hasattr(config, "workerinput"):
        config.pluginmanager.register(groups.Outcomes())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ForkedWorkers())
    for driver in set(registry.SCHEMES.values()):
        config.addinivalue_line("markers", f"{driver.kind}: needs a real {driver.kind} server")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.option.only is None or collection_path.suffix != ".py":
        return None
    path = collection_path.relative_to(groups.ROOT).as_posix()
    return None if groups.selection(config.option.only).reads(path) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[repeated.COLLECTED] = [item.nodeid for item in items]
    for item in items:
        if repeated.row_of(item.nodeid) is not None:
            # Before -m chooses.
            item.add_marker(pytest.mark.repeated)
        if item.get_closest_marker("timeout") is None and (seconds := limits.limit_of(item.nodeid)) is not None:
            item.add_marker(pytest.mark.timeout(seconds))
    if config.option.only is not None:
        takes = groups.selection(config.option.only).takes
        config.hook.pytest_deselected(items=[item for item in items if not takes(item)])
        items[:] = [item for item in items if takes(item)]
    for item in items:
        item.user_properties.append(("group", groups.group_of(item)))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows how the logs of its gateways end."""
    report = yield
    # Most tests start no gateway, and need not import what starts one.
    if report.failed and (harness := sys.modules.get("tests.harness.gateway")) is not None:
        harness.show_logs(report)
    return report


@pytest.fixture
def queue() -> str:
    """A queue name of this test's own."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """The servers of brokers: one that all workers share, and one of this worker for tests that disturb it."""
    from tests.brokers.registry import Servers

    shared: str | None = getattr(request.config, "workerinput", {}).get("servers")
    with ExitStack() as stack:
        yield Servers(stack, tmp_path_factory.mktemp, Path(shared) if shared else None)


@pytest.fixture
def rabbit(servers: Servers) -> RabbitServer:
    """A running RabbitMQ server, without management. A test may stop it, and need not start it again."""
    from tests.brokers.rabbitmq.harness import RabbitBroker

    server: RabbitServer = servers.server(RabbitBroker)
    return server


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> object:
    from tests.harness.scheduling import ByServer

    return ByServer(config, log, config.stash[_SHARED].is_ready)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker where the servers are that all workers share."""
    if _SHARED not in node.config.stash:
        node.config.stash[_SHARED] = SharedServers()
        # What is stopped in this way ends its servers, too.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    node.workerinput["servers"] = str(node.config.stash[_SHARED].directory)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: WorkerController, ids: Sequence[str]) -> None:
    """Start the servers that some test shares."""
    from tests.brokers.registry import SHARED
    from tests.harness.scheduling import shared_servers_of

    needed = set().union(*map(shared_servers_of, ids))
    node.config.stash[_SHARED].start(broker for kind, broker in SHARED.items() if kind in needed)


def pytest_keyboard_interrupt() -> None:
    """Workers are killed now, without the end of their fixtures."""
    _left.extend(psutil.Process().children(recursive=True))


def pytest_unconfigure(config: pytest.Config) -> None:
    if (shared := config.stash.get(_SHARED, None)) is not None:
        shared.close()
        for process in _left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands its part of the table to the process that prints it."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["conformance"] = [tuple(outcome) for outcome in conformance.outcomes.values()]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController) -> None:
    for outcome in getattr(node, "workeroutput", {}).get("conformance", ()):
        conformance.record(*outcome)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = itertools.chain.from_iterable(
        terminalreporter.getreports(each) for each in ("skipped", "failed", "error")
    )
    if lines := ci.untested(reports):
        terminalreporter.section("brokers that are not here")
        for line in lines:
            terminalreporter.write_line(line)
    if conformance.outcomes:
        terminalreporter.section("official conformance suite")
        for line in conformance.table():
            terminalreporter.write_line(line)
