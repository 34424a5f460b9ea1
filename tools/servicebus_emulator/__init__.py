"""A server of Azure Service Bus's protocol for the tests: AMQP 1.0 on qpid-proton's engine, with a durable store."""
