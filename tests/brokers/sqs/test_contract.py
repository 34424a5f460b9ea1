"""The contract, on ElasticMQ and on moto."""

from __future__ import annotations

import pytest

from tests.suites.all import *  # noqa: F403

# aiohttp warns of each request beyond 1 MiB, which is less than the largest message with its escapes.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
