"""The contract, on the toy broker."""

from __future__ import annotations

from tests.suites.all import *  # noqa: F403
