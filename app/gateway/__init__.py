"""The gateway: publishes, receives and settles messages over all bindings. It keeps routes, rights and leases.

The packages above it may import it: ``app.cluster``, ``app.config``, ``app.http``, ``app.server`` and ``app.cli``.
"""
