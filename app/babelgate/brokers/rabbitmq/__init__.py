"""Carries envelopes over RabbitMQ. Only :mod:`babelgate.brokers.registry` loads it, by name."""
