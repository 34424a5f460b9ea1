"""The contract, on a real Kafka server."""

from __future__ import annotations

from tests.suites.all import *  # noqa: F403
from tests.suites.closing import TestClosing as TestClosing
