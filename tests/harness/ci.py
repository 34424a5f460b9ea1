"""A missing part of the environment skips a test on a laptop and fails it in CI."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(what: str, remedy: str) -> NoReturn:
    """End the test because ``what`` is not here: skip it, or fail it where the environment variable CI is ``true``."""
    reason = f"{what} is missing; {remedy}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
