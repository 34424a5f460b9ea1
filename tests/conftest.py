"""Fixtures that every test may ask for."""

from __future__ import annotations

import uuid

import pytest


@pytest.fixture
def queue() -> str:
    """A queue name of this test's own."""
    return f"test.{uuid.uuid4().hex}"
