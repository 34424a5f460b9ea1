"""The layouts of queues in Redis. Only ``babelgate.brokers.redis`` imports them."""
