"""The layouts of queues in Redis. Only ``app.brokers.redis`` imports them."""
