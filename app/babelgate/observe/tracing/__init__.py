"""Tracing: W3C trace context, sampling and spans. The gateway, the HTTP layer and the server import it."""
