"""The Redis binding. Loaded by :mod:`babelgate.brokers.registry` for redis:// URLs; no other package imports it."""
