"""The Redis binding. Loaded by :mod:`app.brokers.registry` for redis:// URLs; no other package imports it."""
