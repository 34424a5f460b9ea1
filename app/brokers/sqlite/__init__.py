"""The SQLite binding. Loaded by :mod:`app.brokers.registry` for sqlite:// URLs; no other package imports it."""
