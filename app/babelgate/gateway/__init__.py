"""The gateway: publishes, receives and settles messages over all bindings. It keeps routes and rights.

The packages above it may import it: ``babelgate.cluster``, ``babelgate.config``, ``babelgate.http``,
``babelgate.server`` and ``babelgate.cli``.
"""
