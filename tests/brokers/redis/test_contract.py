"""The contract, on Redis in each layout."""

from __future__ import annotations

from tests.suites.all import *  # noqa: F403
from tests.suites.closing import TestClosing as TestClosing
