"""Computes the pauses between repeated attempts."""

from __future__ import annotations

import random


class Backoff:
    """Exponential back-off: the pause doubles with each failure, from ``first_seconds`` to ``most_seconds``.

    Each pause is shortened at random by up to half, so that processes that failed together do not retry together.
    """

    def __init__(self, first_seconds: float, most_seconds: float) -> None:
        self._first_seconds = first_seconds
        self._most_seconds = most_seconds
        self._next_seconds = first_seconds

    def failed(self) -> float:
        """Count a failed attempt; return the pause before the next one, in seconds."""
        pause = self._next_seconds
        self._next_seconds = min(pause * 2, self._most_seconds)
        return pause * random.uniform(0.5, 1)

    def succeeded(self) -> None:
        """Begin again with the first pause."""
        self._next_seconds = self._first_seconds
