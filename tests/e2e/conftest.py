"""Settings of the end-to-end tests."""

from __future__ import annotations

collect_ignore = ["new_broker"]
"""The tests of a broker that the project does not have."""
