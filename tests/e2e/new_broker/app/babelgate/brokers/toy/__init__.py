"""A toy broker: all queues in one file. Only the registry and tests import this package."""
