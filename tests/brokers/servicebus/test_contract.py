"""The contract, on the emulator of Azure Service Bus."""

from __future__ import annotations

from tests.suites.all import *  # noqa: F403
from tests.suites.closing import TestClosing as TestClosing
