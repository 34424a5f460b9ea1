"""The SQLite binding. Loaded by :mod:`babelgate.brokers.registry` for sqlite:// URLs; no other package imports it."""
