"""The other gateways and workers: forwards settlements to them and collects their metrics.

The packages above it may import it: ``babelgate.http`` and ``babelgate.server``.
"""
