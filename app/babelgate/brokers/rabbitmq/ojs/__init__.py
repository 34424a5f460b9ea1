"""The OJS profile of RabbitMQ queues. Only :mod:`babelgate.brokers.rabbitmq.options` imports it."""
