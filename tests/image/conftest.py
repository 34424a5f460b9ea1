"""The image of this checkout, built once, and a podman for the tests of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import image as harness


@pytest.fixture(scope="session")
def podman() -> Iterator[harness.Podman]:
    """A podman that has the image."""
    harness.build()
    with harness.podman() as own:
        yield own
