"""The HTTP API: it reads requests, calls the gateway, and writes answers. ``app.server`` imports it."""
