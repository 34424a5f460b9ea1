"""A toy broker: a directory for each queue. Only the registry and tests import this package."""
