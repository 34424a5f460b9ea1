"""Sorts stored bodies into accepted and quarantined ones. ``send``, ``source`` and ``cli`` import it."""
