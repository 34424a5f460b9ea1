"""A browser for each module, and a tab for each test. Import ``console`` of the harness for servers."""

from __future__ import annotations

import pytest

from tests.harness import console
from tests.harness.browser import browser as started


@pytest.fixture(scope="module")
def browser():
    with started() as opened:
        yield opened


@pytest.fixture
def open_tab(browser):
    """A function of a server that opens a tab: see :func:`tests.harness.console.tabs`."""
    with console.tabs(browser) as opening:
        yield opening


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with tokens: ``all`` may do everything, ``reader`` may listen to ``orders.*``."""
    auth = console.tokens(all={"*": list(console.RIGHTS)}, reader={"orders.*": ["listen"]})
    with console.console(tmp_path_factory.mktemp("guarded"), auth=auth) as server:
        yield server


@pytest.fixture(scope="module")
def free(tmp_path_factory):
    """A server that anyone on this machine may use."""
    with console.console(tmp_path_factory.mktemp("free")) as server:
        yield server
