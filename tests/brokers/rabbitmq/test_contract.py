"""The contract, on RabbitMQ in classic and quorum queues, and in the jobs of OJS."""

from __future__ import annotations

from tests.suites.all import *  # noqa: F403
from tests.suites.closing import TestClosing as TestClosing
