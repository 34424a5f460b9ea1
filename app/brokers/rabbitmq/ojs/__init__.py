"""The OJS profile of RabbitMQ queues. Only :mod:`app.brokers.rabbitmq.options` imports it."""
