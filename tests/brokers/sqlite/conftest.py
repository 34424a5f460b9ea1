"""A SQLite binding whose clock a test moves by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.brokers.sqlite.support import Hands, Line, opened


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
async def line(tmp_path: Path, clock: Hands, queue: str) -> AsyncIterator[Line]:
    async with opened(tmp_path / "q.db", clock) as binding:
        yield Line(binding, queue)
