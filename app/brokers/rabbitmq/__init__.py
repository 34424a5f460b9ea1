"""Carries envelopes over RabbitMQ. Only :mod:`app.brokers.registry` loads it, by name."""
