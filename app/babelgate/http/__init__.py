"""The HTTP API: it reads requests, calls the gateway, and writes answers. ``babelgate.server`` imports it."""
