"""The contract, on ElasticMQ and on moto."""

from __future__ import annotations

from tests.suites.all import *  # noqa: F403
